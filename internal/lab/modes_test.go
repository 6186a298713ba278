package lab

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/seedtest"
)

// TestModesChangeUnderStreams changes in a random order how two hosts reach each other (straight, by VXLAN, by VXLAN across networks alone, by
// WireGuard of either family or of both), and breaks things meanwhile: agents are killed, devices of WireGuard are lost with their keys, and a Node that a
// host with the same address left appears. Somebody else has routes to the same, as BGP would: what the agent does not send by its own way goes by those. Connections of both families go on all the time, and of a family that is encrypted nothing is in clear.
func TestModesChangeUnderStreams(t *testing.T) {
	exe := testBinary(t)
	seedtest.Each(t, nil, 1, func(t *testing.T, seed uint64) {
		runScript(t, Runner{Exe: exe}, "modes.txt", modesScript(rand.New(rand.NewPCG(seed, 0)), 6))
	})
}

// familiesOfModes are those of a random scenario: what differs between them.
var familiesOfModes = [2]struct{ rule, stream, link, key string }{
	{"ip rule", "tcp/2000", "wireguard.cali", "wireguardPublicKey"}, {"ip -6 rule", "tcp/2001", "wg-v6.cali", "wireguardPublicKeyV6"},
}

// modes writes such a scenario.
type modes struct {
	rng   *rand.Rand
	steps strings.Builder
	docs  strings.Builder
	n     int     // documents
	on    [2]bool // WireGuard, by family
	clear [2]int  // the captures that must see nothing, of those that are encrypted
	pool  string
}

func modesScript(rng *rand.Rand, steps int) string {
	m := &modes{rng: rng, pool: "Never"}
	m.steps.WriteString(modesHead)
	m.apply(m.pools() + m.settings())
	m.step("stream v4 client web tcp/2000 v4")
	m.step("stream v6 web client tcp/2001 v6")
	m.settled()
	faults := []func(){m.mode, m.mode, m.encrypt, m.encrypt, m.rekey, m.rekey, m.stale}
	for range steps {
		rng.Shuffle(len(faults), func(i, j int) { faults[i], faults[j] = faults[j], faults[i] })
		killed := ""
		if rng.IntN(4) == 0 {
			killed = fmt.Sprintf("h%d", 1+rng.IntN(2))
			m.step("kill %s agent -9", killed)
		}
		faults[0]()
		if killed != "" {
			m.step("wait agent %s", killed)
		}
		m.settled()
	}
	for f := range m.on { // so that every seed sees both ways
		m.turn(f, true)
		m.settled()
		m.turn(f, false)
		m.settled()
	}
	m.step("wait exec h1 twill verify")
	m.step("wait exec h2 twill verify")
	return m.steps.String() + m.docs.String() + modesDocs
}

func (m *modes) step(format string, args ...any) { fmt.Fprintf(&m.steps, format+"\n", args...) }

// apply applies resources.
func (m *modes) apply(text string) {
	m.n++
	m.step("apply doc%d.yaml", m.n)
	fmt.Fprintf(&m.docs, "-- doc%d.yaml --\n%s", m.n, text)
}

func (m *modes) pools() string {
	return fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: ipv4}
spec: {cidr: 10.65.0.0/16, blockSize: 30, vxlanMode: %[1]s}
---
apiVersion: projectcalico.org/v3
kind: IPPool
metadata: {name: ipv6}
spec: {cidr: "fd65::/48", blockSize: 126, vxlanMode: %[1]s}
---
`, m.pool)
}

func (m *modes) settings() string {
	return fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: FelixConfiguration
metadata: {name: default}
spec: {programClusterRoutes: Enabled, wireguardEnabled: %v, wireguardEnabledV6: %v}
`, m.on[0], m.on[1])
}

// settled wants both connections alive without a loss, and everything in force.
func (m *modes) settled() {
	m.step("reach client web tcp/80")
	m.step("stream check v4 lossless")
	m.step("stream check v6 lossless")
	for _, n := range m.clear {
		if n != 0 {
			m.unseen(n)
		}
	}
}

// unseen wants that captures saw nothing, at either host.
func (m *modes) unseen(n int) {
	m.step("capture check clear%dh1 count == 0", n)
	m.step("capture check clear%dh2 count == 0", n)
}

// mode gives the pools another.
func (m *modes) mode() {
	all := slices.DeleteFunc([]string{"Never", "Always", "CrossSubnet"}, func(s string) bool { return s == m.pool })
	m.pool = all[m.rng.IntN(len(all))]
	m.apply(m.pools())
}

func (m *modes) encrypt() {
	f := m.rng.IntN(2)
	m.turn(f, !m.on[f])
}

// turn turns WireGuard of a family on or off. Once both hosts have the rule, nothing leaves in clear, whatever they know of each other.
func (m *modes) turn(f int, on bool) {
	if m.on[f] == on {
		return
	}
	is := familiesOfModes[f]
	if !on {
		m.unseen(m.clear[f])
		m.clear[f] = 0
	}
	m.on[f] = on
	m.apply(m.settings())
	if !on {
		return
	}
	for _, h := range []string{"h1", "h2"} {
		m.step("wait exec %s sh -c '%s show | grep -q 0x100000'", h, is.rule)
	}
	m.n++
	m.clear[f] = m.n
	for _, h := range []string{"h1", "h2"} {
		m.step("capture %s eth0 clear%d%s %s", h, m.n, h, is.stream)
	}
}

// rekey has a host lose a device of WireGuard, and with it the key: the other one learns of the next.
func (m *modes) rekey() {
	f := m.rng.IntN(2)
	if !m.on[f] {
		m.encrypt()
		return
	}
	is, h := familiesOfModes[f], fmt.Sprintf("h%d", 1+m.rng.IntN(2))
	key := fmt.Sprintf(`twill get node %s -o yaml | sed -n "s/.*%s: //p"`, h, is.key)
	m.step(`wait exec %s sh -c 'key=$(%s); test -n "$key" && ip link set lo alias "$key"'`, h, key)
	m.step("exec %s ip link del %s", h, is.link)
	m.step(`wait exec %s sh -c 'key=$(%s); test -n "$key" && ! ip link show lo | grep -qF "$key"'`, h, key)
}

// stale has a Node appear, or go, of a host that had the address of h2 before, with keys that nobody has any more.
func (m *modes) stale() {
	m.n++
	m.apply(fmt.Sprintf(`apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: h0}
spec: {bgp: {ipv4Address: 172.30.0.2/24, ipv6Address: "fd30::2/64"}}
status: {wireguardPublicKey: "%[1]s", wireguardPublicKeyV6: "%[1]s"}
`, fmt.Sprintf("%08dAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=", m.rng.IntN(1e8))))
	m.step("reach web client tcp/80")
	m.step("delete node h0")
}

const modesHead = `# Modes change under streams.
hosts h1 h2
bgp h1 off
bgp h2 off
delete ippool ipv4 ipv6
workload h1 web 10.65.1.6 app=web
workload h2 client 10.65.2.6 app=client
put /calico/ipam/v2/assignment/ipv4/block/10.65.1.4-30 h1-ipv4.json
put /calico/ipam/v2/host/h1/ipv4/block/10.65.1.4-30 affinity.json
put /calico/ipam/v2/assignment/ipv6/block/fd65:0:0:1::4-126 h1-ipv6.json
put /calico/ipam/v2/host/h1/ipv6/block/fd65:0:0:1::4-126 affinity.json
put /calico/ipam/v2/assignment/ipv4/block/10.65.2.4-30 h2-ipv4.json
put /calico/ipam/v2/host/h2/ipv4/block/10.65.2.4-30 affinity.json
put /calico/ipam/v2/assignment/ipv6/block/fd65:0:0:2::4-126 h2-ipv6.json
put /calico/ipam/v2/host/h2/ipv6/block/fd65:0:0:2::4-126 affinity.json
apply networks.yaml
exec h1 ip route add 10.65.2.0/24 via 172.30.0.2
exec h2 ip route add 10.65.1.0/24 via 172.30.0.1
exec h1 ip route add fd65:0:0:2::/64 via fd30::2
exec h2 ip route add fd65:0:0:1::/64 via fd30::1
`

const modesDocs = `-- networks.yaml --
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: h1}
spec: {bgp: {ipv4Address: 172.30.0.1/24, ipv6Address: "fd30::1/64"}}
---
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: h2}
spec: {bgp: {ipv4Address: 172.30.0.2/24, ipv6Address: "fd30::2/64"}}
-- affinity.json --
{"state":"confirmed","deleted":false}
-- h1-ipv4.json --
{"cidr":"10.65.1.4/30","affinity":"host:h1","allocations":[null,null,0,null],"unallocated":[0,1,3],"attributes":[{"handle_id":"workload","secondary":{}}],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}
-- h1-ipv6.json --
{"cidr":"fd65:0:0:1::4/126","affinity":"host:h1","allocations":[null,null,0,null],"unallocated":[0,1,3],"attributes":[{"handle_id":"workload","secondary":{}}],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}
-- h2-ipv4.json --
{"cidr":"10.65.2.4/30","affinity":"host:h2","allocations":[null,null,0,null],"unallocated":[0,1,3],"attributes":[{"handle_id":"workload","secondary":{}}],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}
-- h2-ipv6.json --
{"cidr":"fd65:0:0:2::4/126","affinity":"host:h2","allocations":[null,null,0,null],"unallocated":[0,1,3],"attributes":[{"handle_id":"workload","secondary":{}}],"sequenceNumber":1,"sequenceNumberForAllocation":{},"deleted":false}
`
