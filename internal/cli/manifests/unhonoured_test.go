package manifests_test

import (
	"strings"
	"testing"
)

// TestFieldsWithoutEffectAreReportedEverywhere writes fields that have no effect, and wants a warning where they are
// written and where they are looked at.
func TestFieldsWithoutEffectAreReportedEverywhere(t *testing.T) {
	const head = "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: "
	const warning = "FelixConfiguration default (line 1): spec.bpfEnabled: has no effect: "
	c := newCLI(t)
	for _, tt := range []struct {
		name, in string
		args     []string
		code     int
		out, err string
	}{
		{"validate warns", head + "{bpfEnabled: true}", []string{"validate", "-f", "-"}, 0, "1 resource valid", "warning: standard input: " + warning},
		{"and refuses if asked to", head + "{bpfEnabled: true}", []string{"validate", "-f", "-", "--strict"}, 1, "", warning},
		{"apply refuses if asked to", head + "{bpfEnabled: true}", []string{"apply", "-f", "-", "--strict"}, 1, "", warning},
		{"and stored nothing", "", []string{"get", "felixconfig", "default"}, 1, "", "default"},
		{"what must be honoured is refused in any case", head + "{istioAmbientMode: Enabled}", []string{"apply", "-f", "-"}, 1, "", "spec.istioAmbientMode"},
		{"apply warns and stores", head + "{bpfEnabled: true}", []string{"apply", "-f", "-"}, 0, "created", "warning: standard input: " + warning},
		{"it is there", "", []string{"get", "felixconfig", "default", "-o", "yaml"}, 0, "bpfEnabled: true", ""},
		{"describe says it", "", []string{"describe", "felixconfig", "default"}, 0, "spec.bpfEnabled: has no effect", ""},
		{"config says it and nothing is wrong", "", []string{"config", "--node", "h1"}, 0, "", "spec.bpfEnabled has no effect"},
		{"a patch that brings another", "", []string{"patch", "felixconfig", "default", "-p", `{"spec":{"xdpRefreshInterval":"5s"}}`}, 0, "patched", "spec.xdpRefreshInterval: has no effect"},
		{"a patch that brings none", "", []string{"patch", "felixconfig", "default", "-p", `{"spec":{"logPrefix":"a"}}`}, 0, "patched", ""},
		{"upstream's defaults", head + "{bpfEnabled: false, floatingIPs: Disabled, bpfLogLevel: ''}", []string{"apply", "-f", "-", "--strict"}, 0, "configured", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			code, out, errs := c.Run(tt.in, tt.args...)
			if code != tt.code || !strings.Contains(out, tt.out) || !strings.Contains(errs, tt.err) || tt.err == "" && errs != "" {
				t.Errorf("exit %d, want %d\n%s\n%s\nwant %q and %q", code, tt.code, out, errs, tt.out, tt.err)
			}
		})
	}
}
