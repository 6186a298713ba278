package cli_test

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
)

// readLater are variables that a flag names and that are read when the command runs, each with the test of it.
var readLater = map[string]string{
	"NODENAME":            "TestANodeKeepsItsName",
	"CNI_MTU":             "cli/node.TestInstallReadsTheEnvironmentOfUpstreamsInstaller",
	"KUBECONFIG":          "conn.TestUpstreamsVariablesAndFileSayWhereTheAPIServerIs",
	"K8S_CURRENT_CONTEXT": "conn.TestUpstreamsVariablesAndFileSayWhereTheAPIServerIs",
	"TWILL_CONFIG":        "conn.TestOfSettingsOfThisHostTheNearestCount",
}

var variable = regexp.MustCompile(`\((?:or )?([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)*)[;)]`)

// TestAFlagThatNamesAVariableBeginsWithIt walks all flags of all commands.
func TestAFlagThatNamesAVariableBeginsWithIt(t *testing.T) {
	clitest.ClearStoreEnv(t)
	named := func() map[string][2]string { // command and flag → variable, value
		out := map[string][2]string{}
		var walk func(cmd *cobra.Command)
		walk = func(cmd *cobra.Command) {
			for _, sub := range cmd.Commands() {
				walk(sub)
			}
			cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
				if m := variable.FindStringSubmatch(f.Usage); m != nil && !strings.HasPrefix(m[1], "ETCD_") && readLater[m[1]] == "" {
					out[cmd.CommandPath()+" --"+f.Name] = [2]string{m[1], f.Value.String()}
				}
			})
		}
		walk(cli.Root(&conn.Env{}))
		return out
	}
	for _, flag := range named() {
		t.Setenv(flag[0], "of-"+flag[0])
	}
	all := named()
	for flag, is := range all {
		if is[1] != "of-"+is[0] {
			t.Errorf("with %s=of-%s, %s is %q", is[0], is[0], flag, is[1])
		}
	}
	for _, flag := range []string{"twill node --bgp", "twill node --as", "twill bgp --router-id", "twill confd --router-id", "twill bgp --secrets-dir", "twill node --cluster-id", "twill bird --config"} {
		if _, ok := all[flag]; !ok {
			t.Errorf("%s names no variable: %v", flag, all)
		}
	}
}
