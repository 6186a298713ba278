package caliconode

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/node"
)

var update = flag.Bool("update", false, "write docs/calico-node.md again; read it before you commit it")

// TestTheEnvironmentIsThatOfUpstream: what has no effect is named once it is set, and what is written in a form of upstream's own is read.
func TestTheEnvironmentIsThatOfUpstream(t *testing.T) {
	alone(t)
	for _, v := range variables() {
		t.Setenv(v.name, "")
	}
	for _, v := range variables() {
		idle := v.test == ""
		value := map[string]string{"ETCD_SCHEME": "https", "DATASTORE_TYPE": "etcdv3"}[v.name]
		if value == "" {
			value = "1"
		}
		t.Run(v.name, func(t *testing.T) {
			t.Setenv(v.name, value)
			t.Setenv("ETCD_ENDPOINTS", "http://192.0.2.1:2379")
			_, code, out := call(t.Context(), "calico-node", "-v")
			if named := strings.Contains(out, "warning: "+v.name+" has no effect: "); named != idle || code != 0 {
				t.Errorf("%d, is named: %t, want %t\n%s", code, named, idle, out)
			}
		})
	}
	endpoints := func(env map[string]string) string {
		t.Helper()
		for name, value := range env {
			t.Setenv(name, value)
		}
		t.Setenv("ETCD_ENDPOINTS", "")
		if _, err := prepare(); err != nil {
			return err.Error()
		}
		l, err := node.Local()
		return fmt.Sprintln(l.Settings.Etcd.Endpoints, l.Settings.Health.Port, l.Settings.DatastoreType, err)
	}
	plain := map[string]string{"ETCD_AUTHORITY": "192.0.2.9:4001", "ETCD_SCHEME": "", "DATASTORE_TYPE": ""}
	if got := endpoints(plain); got != "[http://192.0.2.9:4001] 9099 etcdv3 <nil>\n" {
		t.Errorf("%v: %s", plain, got)
	}
	if got := endpoints(map[string]string{"ETCD_SCHEME": "https"}); !strings.HasPrefix(got, "[https://192.0.2.9:4001]") {
		t.Errorf("https: %s", got)
	}
	if got := endpoints(map[string]string{"ETCD_SCHEME": "ftp"}); !strings.Contains(got, "want http or https") {
		t.Errorf("ftp: %s", got)
	}
	if got := endpoints(map[string]string{"ETCD_SCHEME": "http", "felix_healthport": "1234", "FELIX_HEALTHPORT": ""}); !strings.Contains(got, "] 1234 ") {
		t.Errorf("a setting in small letters: %s", got)
	}
}

// TestTheLogOfTheStartIsAsLoudAsAskedFor.
func TestTheLogOfTheStartIsAsLoudAsAskedFor(t *testing.T) {
	alone(t)
	t.Setenv("CALICO_STARTUP_LOGLEVEL", "loud")
	if _, code, out := call(t.Context(), "calico-node", "-startup"); code != 1 || !strings.Contains(out, `CALICO_STARTUP_LOGLEVEL is "loud": want debug`) {
		t.Errorf("%d %s", code, out)
	}
	t.Setenv("CALICO_STARTUP_LOGLEVEL", "ERROR")
	ctx, cancel := context.WithCancel(t.Context())
	cancel() // it does nothing more
	e := &conn.Env{}
	e.Out, e.Err = t.Output(), t.Output()
	if Run(ctx, e, nil, nil, []string{"calico-node", "-startup"}); e.Level.Level() != slog.LevelError {
		t.Errorf("the level is %v", e.Level.Level())
	}
}

// TestThePageIsTheTables of variables and arguments.
func TestThePageIsTheTables(t *testing.T) {
	const page, begin, end = "../../../docs/calico-node.md", "<!-- printed by a test -->\n", "<!-- end -->"
	var b strings.Builder
	fmt.Fprint(&b, "\n| argument of calico-node | here |\n|---|---|\n")
	newFlags(t.Output()).set.VisitAll(func(f *flag.Flag) { fmt.Fprintf(&b, "| `-%s` | %s |\n", f.Name, f.Usage) })
	fmt.Fprint(&b, "\n| variable | here | shown by |\n|---|---|---|\n")
	for _, v := range variables() {
		test := "has no effect, and is warned of"
		if v.test != "" {
			test = "`" + v.test + "`"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %s |\n", v.name, v.why, test)
	}
	fmt.Fprint(&b, "\n| variable of calico-typha | here | shown by |\n|---|---|---|\n")
	for _, s := range typhaSettings() {
		test := "has no effect, and is warned of"
		if s.test != "" {
			test = "`" + s.test + "`"
		}
		fmt.Fprintf(&b, "| `TYPHA_%s` | %s | %s |\n", strings.ToUpper(s.name), s.why, test)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok1 := strings.Cut(string(text), begin)
	_, after, ok2 := strings.Cut(rest, end)
	want := before + begin + b.String() + "\n" + end + after
	if !ok1 || !ok2 {
		t.Fatal("the page has no place for the tables")
	}
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if string(text) != want && !*update {
		t.Error("the page is not what the tables say: go test ./internal/cli/caliconode -update")
	}
}
