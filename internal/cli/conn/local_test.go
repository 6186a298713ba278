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
