package lab

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/seedtest"
)

var meddleFor = flag.Duration("meddle", 0, "how long others meddle with iptables, as make meddle has them; what an agent at rest takes is measured after it. Zero: each thing they do is done once")

// TestOthersMeddleWithIPTables has others flush, reload and change what is in iptables and ipset beside policy of ours, at random, while policy changes. After each
// thing that they do all of ours is as it was, to the last rule, what is theirs is what it would be without Twill, and packets say the same.
func TestOthersMeddleWithIPTables(t *testing.T) {
	for _, name := range []string{"ipset", "iptables-nft-restore", "iptables-legacy-restore", "flock", "nft"} {
		machinetest.Program(t, name)
	}
	t.Setenv("XTABLES_LOCKFILE", filepath.Join(t.TempDir(), "xtables.lock")) // that of the machine is one for all namespaces, and would stop other tests
	seed := seedtest.New(t)
	for _, dataplane := range Dataplanes[1:] {
		t.Run(dataplane, func(t *testing.T) {
			t.Parallel()
			m := newMeddling(t, dataplane, rand.New(rand.NewPCG(seed, 0)))
			if *meddleFor == 0 {
				all := acts()
				m.rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
				for _, a := range all {
					m.round(t, a)
				}
			}
			for end := time.Now().Add(*meddleFor); time.Now().Before(end) && !t.Failed(); {
				all := acts()
				m.round(t, all[m.rng.IntN(len(all))])
			}
			m.verified(t)
			m.report(t)
			if *meddleFor > 0 {
				m.rest(t)
			}
		})
	}
}

// meddling is a host with others on it, and a namespace in which those are alone.
type meddling struct {
	*ground
	backend string // nft or legacy
	rng     *rand.Rand
	twin    *place
	refresh string           // how often the tables are read back, as the settings have it
	variant int              // of the policy, an index of ours
	ours    [2]string        // what is ours with each
	chains  []string         // our chains of table filter
	took    []time.Duration  // from the end of each act until all was repaired
	slowest map[string]int64 // the longest by act, in milliseconds
}

// policies let a reach b and not c, and the other way round.
var policies = [2]string{
	`{"selector":"app == \"b\"","ingress":[{"action":"Allow","source":{"selector":"app == \"a\"","namespaceSelector":"all()"}}]}`,
	`{"selector":"app == \"b\"","ingress":[{"action":"Allow","source":{"selector":"app == \"c\"","namespaceSelector":"all()"}}]}`,
}

func newMeddling(t *testing.T, dataplane string, rng *rand.Rand) *meddling {
	m := &meddling{ground: newGround(t), backend: strings.TrimPrefix(dataplane, "iptables-"), rng: rng, refresh: "0", slowest: map[string]int64{}}
	twin, err := create(m.Spec.Prefix + "others")
	must(t, err)
	m.twin = twin
	t.Cleanup(twin.close)
	if m.backend == "legacy" { // nothing announces its changes
		m.refresh = "1s"
	}
	m.readBack(t, m.refresh)
	await(t, "policy is in "+dataplane+" alone", func() bool {
		return m.inHostNS(`! nft list table inet twill && iptables-`+m.backend+`-save | grep tw-forward`) == nil
	})
	for i := range policies {
		m.policy(t, i)
		m.denies(t) // no beat, which would be a difference
		m.ours[i], m.chains = m.settled(t)
		m.still(t, m.expect()...)
	}
	if m.ours[0] == m.ours[1] || len(m.chains) == 0 {
		t.Fatalf("both policies are the same rules:\n%s", m.ours[0])
	}
	return m
}

// readBack has the tables read back so often.
func (m *meddling) readBack(t *testing.T, every string) {
	t.Helper()
	m.put(t, api.KindFelixConfiguration, "", "default", fmt.Sprintf(`{"nftablesMode":"Disabled","iptablesBackend":%q,"iptablesRefreshInterval":%q}`, map[string]string{"nft": "NFT", "legacy": "Legacy"}[m.backend], every))
}

// policy puts a variant of the policy.
func (m *meddling) policy(t *testing.T, variant int) {
	t.Helper()
	m.variant = variant
	m.put(t, api.KindNetworkPolicy, "demo", "p", policies[variant])
}

// expect is what passes.
func (m *meddling) expect() []string {
	if m.variant == 0 {
		return []string{"a -> b yes", "c -> b no", "h1 -> a yes", "a -> h1:8080 no", "c -> d yes"}
	}
	return []string{"a -> b no", "c -> b yes", "h1 -> a yes", "a -> h1:8080 no", "c -> d yes"}
}

// denies awaits that the policy is in force: what it alone denies passes no more.
func (m *meddling) denies(t *testing.T) {
	t.Helper()
	from, b := m.Spec.Workloads[2-2*m.variant], netip.AddrPortFrom(m.Spec.Workloads[1].V4, 80)
	silent := 0 // times in a row: once may be the machine's
	await(t, "the policy is in force", func() bool {
		silent++
		if dial(t, m.Spec.workloadNS(from), b, patience) {
			silent = 0
		}
		return silent == 2
	})
}

// inHostNS runs a script on the host; what it printed is in the error.
func (m *meddling) inHostNS(script string) error {
	return inside(m.Spec.hostNS(m.Spec.Hosts[0]), func() error { return m.sh(script) })
}

// alone runs a script where there is no Twill; parts of it are about what is ours, and fail.
func (m *meddling) alone(t *testing.T, script string) {
	t.Helper()
	must(t, m.twin.ns.Do(func() error { _ = m.sh(script, "ALONE=1"); return nil }))
}

// wait has the programs of the legacy backend wait for their lock.
func (m *meddling) wait() string { return map[string]string{"legacy": " -w 60"}[m.backend] }

// sh runs a script in the namespace of the calling thread.
func (m *meddling) sh(script string, env ...string) error {
	cmd := exec.Command("sh", "-c", script)
	cmd.Env = append(os.Environ(), env...)
	cmd.Env = append(cmd.Env, "I=iptables-"+m.backend+m.wait(), "J=ip6tables-"+m.backend+m.wait())
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// read is what is in a namespace.
func (m *meddling) read(t *testing.T, ns string) (out texts, chains []string) {
	t.Helper()
	var tables [2]string
	var sets string
	var err error
	get := func() error {
		for i, program := range []string{"iptables-", "ip6tables-"} {
			text, err := exec.Command(program + m.backend + "-save").Output()
			if err != nil {
				return err
			}
			tables[i] = string(text)
		}
		text, err := exec.Command("ipset", "save").Output()
		sets = string(text)
		return err
	}
	for try := 1; try <= 100; try++ { // a set may go after the rules were read, and before iptables-save asks for its name: then it fails
		if err = inside(ns, get); err == nil {
			break
		}
	}
	must(t, err)
	return sorted(tables, sets)
}

// joined is a text of what there is by its name.
func joined(of map[string][]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(of)) {
		lines := of[name]
		if strings.HasPrefix(name, "set ") {
			slices.Sort(lines)
		}
		for _, line := range lines {
			fmt.Fprintf(&b, "%s: %s\n", name, line)
		}
	}
	return b.String()
}

// settled is what is ours once it no longer changes.
func (m *meddling) settled(t *testing.T) (ours string, chains []string) {
	t.Helper()
	same := 0
	await(t, "the rules settle", func() bool {
		now, all := m.read(t, m.Spec.hostNS(m.Spec.Hosts[0]))
		if same++; now.ours != ours {
			same = 0
		}
		ours, chains = now.ours, all
		return same > 4
	})
	return ours, chains
}

// round lets others do something, waits until it is repaired, and judges by packets.
func (m *meddling) round(t *testing.T, a act) {
	t.Helper()
	if a.sets && m.backend == "nft" {
		m.readBack(t, "1s")
		defer m.readBack(t, m.refresh)
	}
	changes := m.rng.IntN(3) == 0 || a.name == "the lock is held"
	if changes && a.name != "the lock is held" && m.rng.IntN(2) == 0 {
		m.policy(t, 1-m.variant)
		changes = false
	}
	script := m.filled(a.script)
	_ = m.inHostNS(script) // parts of it are for one backend, or about what is there at times
	m.alone(t, script)
	began := time.Now()
	if changes {
		m.policy(t, 1-m.variant)
	}
	m.repaired(t, a.name)
	took := time.Since(began)
	m.took = append(m.took, took)
	m.slowest[a.name] = max(m.slowest[a.name], took.Milliseconds())
	m.still(t, m.expect()...)
	if a.after != "" {
		_ = m.inHostNS(a.after)
		m.alone(t, a.after)
		m.repaired(t, "the end of: "+a.name)
	}
	if t.Failed() {
		t.Fatalf("it was after: %s", a.name)
	}
}

// filled is a script with names of ours.
func (m *meddling) filled(script string) string {
	var sets []string
	for line := range strings.Lines(m.ours[m.variant]) {
		if name, is := strings.CutPrefix(line, "set "); is {
			name, _, _ = strings.Cut(name, ":")
			if !slices.Contains(sets, name) {
				sets = append(sets, name)
			}
		}
	}
	held := "1"
	if *meddleFor > 0 {
		held = "10"
	}
	denied := m.Spec.Workloads[2-2*m.variant]
	return strings.NewReplacer("$CHAIN", one(m.rng, m.chains), "$SETS", strings.Join(sets, " "), "$SET", one(m.rng, sets), "$ADDR", denied.V4.String(), "$HELD", held,
		"$RESTORE", fmt.Sprintf("'iptables-%[1]s-restore%[2]s' 'ip6tables-%[1]s-restore%[2]s'", m.backend, m.wait())).Replace(script)
}

// repaired waits until all of ours is there as it was, and wants what others have to be what they would have without us.
func (m *meddling) repaired(t *testing.T, after string) {
	t.Helper()
	host := m.Spec.hostNS(m.Spec.Hosts[0])
	var now texts
	for deadline := time.Now().Add(scenarioPatience); ; {
		now, _ = m.read(t, host)
		if now.ours == m.ours[m.variant] {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %q, in %s, what is ours is not as it was:\n%s", after, scenarioPatience, changed(m.ours[m.variant], now.ours))
		}
	}
	if alone, _ := m.read(t, m.Spec.Prefix+"others"); now.others != alone.others {
		t.Fatalf("after %q, others have other than without Twill:\n%s", after, changed(alone.others, now.others))
	}
}

// changed are the lines that two texts do not share.
func changed(was, is string) string {
	var b strings.Builder
	a, z := strings.Split(was, "\n"), strings.Split(is, "\n")
	for _, line := range a {
		if !slices.Contains(z, line) {
			b.WriteString("- " + line + "\n")
		}
	}
	for _, line := range z {
		if !slices.Contains(a, line) {
			b.WriteString("+ " + line + "\n")
		}
	}
	return b.String()
}

// report prints what there was to repair, and how long it took.
func (m *meddling) report(t *testing.T) {
	t.Helper()
	slices.Sort(m.took)
	n := len(m.took)
	repairs := map[string]int{}
	for _, cause := range []string{"event", "read-back"} {
		repairs[cause] = m.metric(t, fmt.Sprintf(`twill_dataplane_repairs_total{cause=%q,driver="iptables"}`, cause))
	}
	t.Logf("%s: %d times others meddled; repairs %v; repaired after %s in the middle, %s at most", m.backend, n, repairs, m.took[n/2].Round(time.Millisecond), m.took[n-1].Round(time.Millisecond))
	for _, name := range slices.Sorted(maps.Keys(m.slowest)) {
		t.Logf("  %6d ms at most: %s", m.slowest[name], name)
	}
	if m.backend == "nft" && repairs["event"] == 0 || repairs["event"]+repairs["read-back"] == 0 {
		t.Error("nothing was repaired that should have been")
	}
}

// atRest is how long it is measured. In that time tables are read back once, and so three times as often as with default settings.
const atRest = 60 * time.Second

// rest prints what the agent takes of a processor when nobody meddles, with the programs that it runs.
func (m *meddling) rest(t *testing.T) {
	t.Helper()
	m.readBack(t, atRest.String())
	m.settled(t)
	pid := m.agentPID(m.Spec.Hosts[0])
	own, programs := cpuOf(t, pid)
	<-time.After(atRest)
	ownAfter, programsAfter := cpuOf(t, pid)
	share := func(ticks int) float64 { return float64(ticks) / 100 / atRest.Seconds() * 100 }
	t.Logf("%s: at rest for %s, the agent takes %.3f %% of a processor, and programs that it runs %.3f %%", m.backend, atRest, share(ownAfter-own), share(programsAfter-programs))
}

// cpuOf is what a process has taken, and its children that ended, in ticks of 10 ms (proc(5): utime, stime, cutime, cstime).
func cpuOf(t *testing.T, pid int) (own, children int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	must(t, err)
	f := strings.Fields(string(text)[strings.LastIndexByte(string(text), ')')+1:])
	at := func(i int) int { n, err := strconv.Atoi(f[i-3]); must(t, err); return n } // the third field is the first after the name
	return at(14) + at(15), at(16) + at(17)
}
