package api

import (
	"errors"
	"strings"
	"testing"
)

// TestFieldsWithoutEffectAreWarnedOf has the fields on which Twill does not act as users write them: each is accepted in
// silence if it asks for nothing else than what happens, and else warned of or refused by its name.
func TestFieldsWithoutEffectAreWarnedOf(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		warned   string // paths, in order
		refused  string
	}{
		{name: "a value that would do something", in: felixHead + "{bpfEnabled: true}", warned: "spec.bpfEnabled"},
		{name: "upstream's default", in: felixHead + "{bpfEnabled: false, floatingIPs: Disabled, bpfLogLevel: 'off', bpfMapSizeRoute: 262144, wireguardEnabled: false}"},
		{name: "upstream's default in another case", in: felixHead + "{bpfEnforceRPF: loose}"},
		{name: "values that say nothing", in: felixHead + "{bpfLogLevel: '', bpfLogFilters: {}, bpfDSROptoutCIDRs: [], iptablesBackend: null}"},
		{name: "false where true is the default", in: felixHead + "{bpfDisableUnprivileged: false}", warned: "spec.bpfDisableUnprivileged"},
		{name: "a list that is the default", in: felixHead + "{bpfForceTrackPacketsFromIfaces: [ docker+ ]}"},
		{name: "another list", in: felixHead + "{bpfForceTrackPacketsFromIfaces: [docker+, br+]}", warned: "spec.bpfForceTrackPacketsFromIfaces"},
		{name: "fields of upstream's master", in: felixHead + "{bpfIPFragTimeout: 30s, bpfOverlayHostSourceIP: HostAddress, nftablesMapRefreshInterval: 120s}", warned: "spec.bpfIPFragTimeout spec.bpfOverlayHostSourceIP spec.nftablesMapRefreshInterval"},
		{name: "a field whose type is another than upstream's", in: felixHead + "{bpfEnabled: {a: [1]}}", warned: "spec.bpfEnabled"},
		{name: "what would open", in: felixHead + "{istioAmbientMode: Enabled, bpfEnabled: true}", refused: "spec.istioAmbientMode"},
		{name: "routes of the agent's", in: felixHead + "{deviceRouteProtocol: 3, removeExternalRoutes: false}"},
		{name: "what is of iptables", in: felixHead + "{iptablesRefreshInterval: 9s, iptablesPostWriteCheckInterval: 9s, maxIpsetSize: 9}", warned: "spec.iptablesPostWriteCheckInterval spec.maxIpsetSize"},
		{name: "what is so in nftables in any case", in: felixHead + "{nftablesFilterAllowAction: Return, nftablesMangleAllowAction: RETURN, nftablesFilterDenyAction: Drop}"},
		{name: "an answer to what nftables denies", in: felixHead + "{nftablesFilterAllowAction: Accept, nftablesFilterDenyAction: Reject}", warned: "spec.nftablesFilterDenyAction"},
		{name: "policy in iptables", in: felixHead + "{nftablesMode: Disabled, iptablesBackend: Legacy}"},
		{name: "what finds faults in upstream's agent", in: felixHead + "{debugMemoryProfilePath: /a, debugSimulateCalcGraphHangAfter: 9s}", warned: "spec.debugSimulateCalcGraphHangAfter"},
		{name: "logs into files", in: felixHead + "{logSeverityFile: Info, logSeveritySys: Info, logFilePath: /a, logDebugFilenameRegex: a, debugDisableLogDropping: true}"},
		{name: "a part that the agent has not", in: felixHead + "{healthTimeoutOverrides: [{name: calc, timeout: 5s}, {name: InternalDataplaneMainLoop, timeout: 5s}, {name: CalculationGraph, timeout: 5s}, {name: FelixStartup, timeout: 5s}]}", warned: "spec.healthTimeoutOverrides[3].name"},
		{name: "a pool that is encapsulated", in: "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/16, ipipMode: Always}"},
		{name: "a pool that is not", in: "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: a}\nspec: {cidr: 10.65.0.0/16, ipipMode: Never, vxlanMode: Never}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(tt.in))
			var errs FieldErrors
			if err != nil && !errors.As(err, &errs) {
				t.Fatal(err)
			}
			var warned FieldErrors
			for _, d := range docs {
				warned = append(warned, d.Warnings...)
			}
			if got := paths(warned); got != tt.warned {
				t.Errorf("warned of %q, want %q", got, tt.warned)
			}
			if got := paths(errs); got != tt.refused {
				t.Errorf("refused %q, want %q", got, tt.refused)
			}
		})
	}
}

func paths(errs FieldErrors) string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Path)
	}
	return strings.Join(out, " ")
}

// TestFieldsWithoutEffectAreKept stores such fields, and has what is written now win over what was stored, also where it
// is empty.
func TestFieldsWithoutEffectAreKept(t *testing.T) {
	for _, tt := range []struct{ name, old, now, want string }{
		{"a new one", `{"spec":{}}`, "{bpfEnabled: true}", `"bpfEnabled":true`},
		{"in place of another", `{"spec":{"bpfLogLevel":"Debug"}}`, "{bpfLogLevel: Info}", `"bpfLogLevel":"Info"`},
		{"an empty one", `{"spec":{"bpfLogLevel":"Debug"}}`, "{bpfLogLevel: ''}", `"bpfLogLevel":""`},
		{"one that is no longer written", `{"spec":{"bpfLogLevel":"Debug"}}`, "{}", `"spec":{}`},
		{"one that nobody knows stays", `{"spec":{"inventedLater":1}}`, "{bpfLogLevel: ''}", `"inventedLater":1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(felixHead + tt.now))
			if err != nil || len(docs) != 1 {
				t.Fatalf("%d documents, %v", len(docs), err)
			}
			got, err := MergeRaw([]byte(tt.old), docs[0].Resource)
			if err != nil || !strings.Contains(string(got), tt.want) || tt.now != tt.want && strings.Contains(string(got), "Debug") {
				t.Errorf("%s, %v; want %s", got, err, tt.want)
			}
		})
	}
}
