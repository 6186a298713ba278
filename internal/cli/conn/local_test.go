package conn_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
)

// TestOfSettingsOfThisHostTheNearestCount: a flag before the environment, that before a file; and a file by flag or variable.
func TestOfSettingsOfThisHostTheNearestCount(t *testing.T) {
	file := clitest.File(t, "twill.conf", "interfacePrefix = file\nlogSeverityScreen = error\nlogFormat = json\nnodeName = file\n")
	other := clitest.File(t, "other.conf", "interfacePrefix = other\n")
	for _, tt := range []struct {
		name   string
		env    map[string]string
		flags  []string
		prefix string
		node   string
	}{
		{"a file that a variable names", map[string]string{"TWILL_CONFIG": file}, nil, "file", "file"},
		{"one that a flag names is nearer", map[string]string{"TWILL_CONFIG": file}, []string{"--config=" + other, "--node=n"}, "other", "n"},
		{"the environment", map[string]string{"TWILL_CONFIG": file, "FELIX_INTERFACEPREFIX": "env", "NODENAME": "env"}, nil, "env", "env"},
		{"a flag", map[string]string{"TWILL_CONFIG": file, "FELIX_INTERFACEPREFIX": "env", "NODENAME": "env"}, []string{"--interface-prefix=a,b", "--node=flag"}, "a b", "flag"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.ClearStoreEnv(t)
			for name, value := range tt.env {
				t.Setenv(name, value)
			}
			var l conn.Local
			cmd := &cobra.Command{}
			l.AddFlags(cmd)
			if err := cmd.ParseFlags(tt.flags); err != nil {
				t.Fatal(err)
			}
			if err := l.Read(); err != nil || len(l.Problems) > 0 {
				t.Fatal(err, l.Problems)
			}
			if got := l.Settings.InterfacePrefixes; !slices.Equal(got, strings.Fields(tt.prefix)) || l.Node != tt.node {
				t.Errorf("prefixes %q of node %q, want %q of %q", got, l.Node, tt.prefix, tt.node)
			}
			if tt.prefix != "other" && (l.Settings.LogSeverity != "Error" || l.Settings.LogFormat != "json") {
				t.Errorf("what the file alone says: %q, %q", l.Settings.LogSeverity, l.Settings.LogFormat)
			}
			if n := len(l.Layers); n != 3 {
				t.Errorf("the agent is handed %d layers", n)
			}
		})
	}
}

// TestADatastoreMayBeAMirror: of those that the variable names, for who acts on it; the Kubernetes API is none.
func TestADatastoreMayBeAMirror(t *testing.T) {
	for _, tt := range []struct{ masters, store, want, wrong string }{
		{masters: "", want: ""},
		{masters: "openstack, operator", want: "openstack operator"},
		{masters: "Open/Stack", wrong: `TWILL_DATASTORE_MASTERS: master "Open/Stack": want lower-case letters`},
		{masters: "openstack", store: "kubernetes", wrong: "the Kubernetes API, which is the master itself"},
	} {
		clitest.ClearStoreEnv(t)
		t.Setenv(conn.MastersVariable, tt.masters)
		t.Setenv("DATASTORE_TYPE", tt.store)
		t.Setenv("KUBECONFIG", clitest.File(t, "kubeconfig", "apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: u}}]\nclusters: [{name: c, cluster: {server: \"https://192.0.2.1:6443\"}}]\nusers: [{name: u, user: {token: t}}]\n"))
		var l conn.Local
		if err := l.Read(); tt.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), tt.wrong) {
				t.Errorf("%q: got %v, want %s", tt.masters, err, tt.wrong)
			}
			continue
		} else if err != nil {
			t.Fatal(err)
		}
		var c conn.Connection
		if got := l.Followed(&c).Masters; strings.Join(got, " ") != tt.want {
			t.Errorf("%q: got %q", tt.masters, got)
		}
		if got := l.Store(&c).Masters; len(got) > 0 {
			t.Errorf("%q: who repairs a mirror reads it as it is, not as one of %q", tt.masters, got)
		}
	}
}
