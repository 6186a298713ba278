package selectors_test

import (
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func TestASelectorIsTriedOnLabels(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	for _, tt := range []struct {
		expr   string
		labels []string
		code   int
		want   string
	}{
		{`app=='web'&&has( env )`, []string{"app=web", "env="}, 0, `match: (app == "web" && has(env))`},
		{`app == "web"`, []string{"app=db"}, 1, `no match: app == "web"`},
		{`!has(app)`, nil, 0, `match: !has(app)`},
		{`app = "web"`, nil, 2, "twill: "},
		{`all()`, []string{"web"}, 2, `twill: label "web": want KEY=VALUE`},
	} {
		clitest.Contains(t, c.Want(tt.code, "", append([]string{"selector", "match", tt.expr}, tt.labels...)...), tt.want)
	}
}
