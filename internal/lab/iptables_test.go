package lab

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

var onIPTables = flag.Bool("iptables", false, "all scenarios on iptables, and all changes of the dataplane, of which a run has a few else; make iptables")

// scenariosOnIPTables are a third of the lab's: what they are about is where policy is. Each must pass wherever that is, as it stands.
var scenariosOnIPTables = []string{
	"agent_killed", "auto_host_endpoint", "bandwidth", "capture", "default_deny", "dhcp", "diff", "dscp", "endpoint_api", "endpoint_files", "floating", "floating_network", "flows", "host_endpoint",
	"host_to_workload", "links", "live_migration", "local_subnet", "log", "metadata", "mirror", "named_ports", "network_sets", "nonsense", "not_ready", "over_budget", "policy_sync",
	"profiles", "qos", "realised", "reject", "service_loops", "store_compacted", "store_cut", "store_restart", "tier_pass", "workload_to_host",
}

// sampleOnIPTables are those of each run.
var sampleOnIPTables = map[string]string{"reject": "iptables-legacy", "host_endpoint": "iptables-nft"}

// notOnIPTables are scenarios about policy that cannot be run there, and why.
var notOnIPTables = map[string]string{
	"by_chains":              "is about the form of policy in nftables",
	"compiled":               "is about policy as look-ups, which iptables does not have",
	"diags":                  "reads what nft lists",
	"doctor":                 "makes tables of others with nft",
	"drift":                  "changes table inet twill; iptables.txt has its like",
	"explain":                "is about maps of nftables",
	"interfaces_of_the_host": "reads table inet twill, and what twill doctor finds in it",
	"tunnels_explained":      "is about maps of nftables",
	"verify":                 "flushes a chain of table inet twill",
}

const (
	notCounted  = "the agent does not count packets of rules in iptables"
	twoFamilies = "a rule of no family is two in iptables"
	ofTable     = "reads table inet twill"
)

// stepsNotOnIPTables are steps that ask for what iptables does not have. All others of those scenarios are asked.
var stepsNotOnIPTables = []struct{ scenario, step, reason string }{
	{"auto_host_endpoint", `exec h1 nft list chain inet twill host-in`, ofTable},
	{"flows", `stdout 'ingress\[0\] allow [1-9].*ingress\[1\] deny [1-9]'`, notCounted},
	{"flows", `stdout 'ingress\[0\] would deny [1-9]'`, notCounted},
	{"log", `stdout 'ingress\[0\] log [1-9].*ingress\[1\] allow [1-9].*ingress\[2\] deny [1-9]'`, notCounted},
	{"over_budget", `stdout 'networkpolicy/default/dear on h1: error: over the budget of one policy, so it denies everything: 8193 kernel rules, at most 8192 are allowed'`, twoFamilies},
	{"qos", "exec h1 nft list table inet twill\nstdout 'ct count over 2 counter packets [1-9]'", ofTable},
	{"qos", "exec h1 nft list table inet twill\nstdout 'limit rate over 5000/second burst 200 packets'", ofTable},
	{"reject", `stdout 'ingress\[1\] deny [1-9]'`, notCounted},
}

var hostsLine = regexp.MustCompile(`(?m)^hosts( h\d+)+`)

// onDataplane is the text of a scenario for hosts whose policy is in iptables, which first show that it is there.
func onDataplane(t *testing.T, name, dataplane string) (file, text string) {
	t.Helper()
	file = "../../testdata/script/" + name + ".txt"
	b, err := os.ReadFile(file)
	must(t, err)
	text = string(b)
	for _, s := range stepsNotOnIPTables {
		if s.scenario != name {
			continue
		}
		if strings.Count(text, "\n"+s.step+"\n") != 1 {
			t.Fatalf("%s has no step %s: correct the list", name, s.step)
		}
		text = strings.Replace(text, "\n"+s.step+"\n", "\n\n", 1)
	}
	at := hostsLine.FindStringIndex(text)
	if at == nil {
		t.Fatalf("%s has no line of hosts", name)
	}
	end := at[0] + strings.IndexByte(text[at[0]:], '\n')
	shows := ""
	for _, host := range strings.Fields(text[at[0]:at[1]])[1:] {
		shows += fmt.Sprintf("\nwait exec %s sh -c '%s-save | grep tw-forward && ! nft list table inet twill'", host, dataplane)
	}
	return file, text[:end] + shows + text[end:]
}

// TestScriptOnIPTables runs scenarios on hosts whose policy is in iptables, of either backend: they must not see a difference.
func TestScriptOnIPTables(t *testing.T) {
	for _, name := range []string{"ipset", "iptables-nft-restore", "iptables-legacy-restore"} {
		machinetest.Program(t, name)
	}
	exe := testBinary(t)
	for _, name := range scenariosOnIPTables {
		for _, dataplane := range Dataplanes[1:] {
			if sampleOnIPTables[name] != dataplane && !*onIPTables {
				continue
			}
			t.Run(name+"/"+dataplane, func(t *testing.T) {
				t.Parallel()
				file, text := onDataplane(t, name, dataplane)
				runScript(t, Runner{Exe: exe, Dataplane: dataplane}, file, text)
			})
		}
	}
}

// TestEachScenarioOfNftablesSaysSo: of what is not run on iptables the reason is true, and nothing is on both lists.
func TestEachScenarioOfNftablesSaysSo(t *testing.T) {
	for name := range notOnIPTables {
		b, err := os.ReadFile("../../testdata/script/" + name + ".txt")
		must(t, err)
		if !regexp.MustCompile(`\bnft |nftables|policyRendering`).Match(b) {
			t.Errorf("%s says nothing of nftables: it may run on iptables", name)
		}
		if slices.Contains(scenariosOnIPTables, name) {
			t.Errorf("%s is on both lists", name)
		}
	}
	if all, err := os.ReadDir("../../testdata/script"); err != nil || 3*len(scenariosOnIPTables) < len(all) {
		t.Errorf("%d of %d scenarios run on iptables, want a third (%v)", len(scenariosOnIPTables), len(all), err)
	}
}

// TestTheDataplaneChangesUnderStreams: policy goes from nftables to each backend of iptables and back while streams flow, those that are allowed and those
// that are not: none is broken, and none let through.
func TestTheDataplaneChangesUnderStreams(t *testing.T) {
	for _, name := range []string{"ipset", "iptables-nft-restore", "iptables-legacy-restore"} {
		machinetest.Program(t, name)
	}
	streams, changes := 8, 3
	if *onIPTables {
		streams, changes = 50, 20
	}
	l := testLab(t, restartSpec())
	store, err := l.store(t.Context())
	must(t, err)
	defer store.Close()
	_, err = store.Create(t.Context(), policy(0))
	must(t, err)
	client, server, stranger := &l.Spec.Workloads[0], &l.Spec.Workloads[1], &l.Spec.Workloads[2]
	decides := func(when string) {
		for _, v6 := range []bool{false, true} {
			await(t, when+" the client reaches the server", func() bool { ok, err := l.Reach("client", "server", 80, v6); return ok && err == nil })
			await(t, when+" the stranger does not", func() bool { ok, err := l.Reach("stranger", "server", 80, v6); return !ok && err == nil })
		}
	}
	decides("at first")
	var all []*stream
	const pace = 20 * time.Millisecond // a hundred streams: more would measure queues
	for i := range streams {
		v6 := i%2 == 1
		if i%4 < 2 {
			all = append(all, startUDPAt(t, l, pace, client, server, v6, true))
		} else {
			all = append(all, startTCPAt(t, l, pace, client, server, v6))
		}
		all = append(all, startUDPAt(t, l, pace, stranger, server, v6, false))
	}
	for i := range changes {
		to := Dataplanes[(i+1)%len(Dataplanes)]
		l.policyIn(t, to)
		if *onIPTables || i == changes-1 { // that nothing comes is waited for
			decides(fmt.Sprintf("after change %d, to %s,", i+1, to))
		}
	}
	for _, s := range all {
		s.stop(t)
	}
}

// policyIn has settings want policy in a dataplane, and waits until it is there alone.
func (l *Lab) policyIn(t *testing.T, dataplane string) {
	t.Helper()
	spec := map[string]string{"nftables": "nftablesMode: Enabled", "iptables-nft": "nftablesMode: Disabled, iptablesBackend: NFT", "iptables-legacy": "nftablesMode: Disabled, iptablesBackend: Legacy"}[dataplane]
	var out bytes.Buffer
	code, err := l.Exec("h1", []string{l.Exe, "apply", "-f", "-"}, strings.NewReader("apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: {"+spec+"}\n"), &out, &out)
	must(t, err)
	if code != 0 {
		t.Fatalf("apply: %s", out.String())
	}
	const where = `nft list tables | grep -q "inet twill" && echo nftables; iptables-nft-save 2>/dev/null | grep -q tw-forward && echo iptables-nft; iptables-legacy-save | grep -q tw-forward && echo iptables-legacy; true`
	await(t, "policy is in "+dataplane+" alone", func() bool {
		out.Reset()
		_, err := l.Exec("h1", []string{"sh", "-c", where}, nil, &out, &out)
		return err == nil && strings.TrimSpace(out.String()) == dataplane
	})
}
