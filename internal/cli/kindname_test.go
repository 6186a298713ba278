package cli_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

// TestKindAndNameMayBeOneWord: kubectl takes KIND/NAME wherever it takes KIND NAME.
func TestKindAndNameMayBeOneWord(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	t.Setenv("EDITOR", "true")
	for _, tt := range []struct{ name, slash, apart string }{
		{"get", "get np/db -n prod -o name", "get np db -n prod -o name"},
		{"several of one kind", "get wep/h1-k8s-web-eth0 workloadendpoints/h2-k8s-db-eth0 -n prod -o name", "get wep h1-k8s-web-eth0 h2-k8s-db-eth0 -n prod -o name"},
		{"describe", "describe networkpolicy.projectcalico.org/db -n prod", "describe np db -n prod"},
		{"label", "label node/h1 example.org/rack=r7 --dry-run", "label node h1 example.org/rack=r7 --dry-run"},
		{"patch", "patch tier/security -p '{spec: {order: 7}}' --dry-run", "patch tier security -p '{spec: {order: 7}}' --dry-run"},
		{"edit", "edit tier/security --dry-run", "edit tier security --dry-run"},
		{"delete", "delete np/db -n prod --dry-run", "delete np db -n prod --dry-run"},
		{"delete of a namespace", "delete ns/prod --dry-run --cascade", "delete ns prod --dry-run --cascade"},
		{"what does not exist", "get np/nope -n prod", "get np nope -n prod"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := c.On(t).Run("", clitest.Words(tt.apart)...)
			clitest.Equal(t, c.On(t).Want(code, "", clitest.Words(tt.slash)...), strings.TrimSpace(out+errs))
		})
	}
	for _, tt := range []struct{ name, args, want string }{
		{"kinds that differ", "get np/web gnp/out", `get: "np/web" and "gnp/out" are of different kinds; ask for one kind at a time`},
		{"a name alone after it", "delete np/web db", `delete: "db": want KIND/NAME, as the first`},
		{"the form of messages", "get networkpolicy/prod/web", `get: "networkpolicy/prod/web": give the namespace by -n: networkpolicy/web -n prod`},
		{"no name", "label np/ a=b", `label: "np/": want KIND/NAME`},
		{"no kind", "patch /web -p {}", `patch: "/web": want KIND/NAME`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.Contains(t, c.On(t).Want(2, "", clitest.Words(tt.args)...), tt.want)
		})
	}
}

// TestWhatIsInAnotherNamespaceIsNamed: the namespace is default unless -n says another, which is easily forgotten.
func TestWhatIsInAnotherNamespaceIsNamed(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	t.Setenv("EDITOR", "true")
	for _, args := range []string{"get np db", "describe np db", "label np db a=b", "patch np db -p '{spec: {order: 7}}'", "edit np db", "delete np db"} {
		clitest.Contains(t, c.Want(1, "", clitest.Words(args)...), "does not exist", "; it does with -n prod")
	}
	c.Want(0, "", "delete", "np", "db", "--skip-not-exists")
	if out := c.Want(1, "", "label", "np", "nope", "a=b"); strings.Contains(out, "-n") {
		t.Errorf("of what is nowhere it says %q", out)
	}
}
