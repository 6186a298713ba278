package conn_test

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// TestWaitingIsShown: a datastore that answers late is not a command that hangs.
func TestWaitingIsShown(t *testing.T) {
	clitest.ClearStoreEnv(t)
	for _, tt := range []struct {
		name, args, want string
		open, list       time.Duration
	}{
		{"at once", "get nodes", "", 0, 0},
		{"it opens late", "get nodes --timeout 60s", "twill: waiting for the datastore at http://192.0.2.9:2379, 10s\n", 15 * time.Second, 0},
		{"it answers late", "get nodes --timeout 60s", "twill: waiting for the datastore at http://192.0.2.9:2379, 10s\n", 0, 15 * time.Second},
		{"addresses are many", "ipam check --timeout 60s", "twill: reading addresses, 10s\n", 0, 2 * time.Second},
		{"so are keys", "datastore export --timeout 60s", "twill: reading the datastore, 10s\n", 0, 15 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := clitest.New(t, cli.Execute)
				c.Store.Fail(func(o memstore.Op) error {
					if o.Verb == "list" {
						<-time.After(tt.list)
					}
					return nil
				})
				var out, errs bytes.Buffer
				e := c.Env(console.Stdio{In: strings.NewReader(""), Out: &out, Err: &errs})
				e.Conn.Open = func(context.Context) (datastore.Store, func(), error) {
					<-time.After(tt.open)
					return c.Store, func() {}, nil
				}
				args := append(strings.Fields(tt.args), "--etcd", "http://192.0.2.9:2379")
				if code := cli.Execute(t.Context(), e, args); code != 0 {
					t.Errorf("exit code %d", code)
				}
				shown := ""
				for line := range strings.Lines(errs.String()) {
					if strings.HasPrefix(line, "twill: ") && strings.Contains(line, "0s") {
						shown += line
					}
				}
				if shown != tt.want {
					t.Errorf("said %q, want %q", errs.String(), tt.want)
				}
			})
		})
	}
}
