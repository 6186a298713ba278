package calctest

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
)

// Query is a packet that opens a flow.
type Query struct {
	Src, Dst           string // an address, or host/NODE
	Family             int    // 4 or 6
	Proto              uint8
	SrcPort, DstPort   uint16
	ICMPType, ICMPCode uint8
}

// RandomQuery makes one up: mostly between workloads of this world, whether
// they are there now or not, and with ports and types that its rules speak of.
func (w *Cluster) RandomQuery(rng *rand.Rand) Query {
	q := Query{Family: 4, SrcPort: []uint16{1024, 33000, 80, 80, 80, 53, 53, 8080}[rng.IntN(8)]}
	if rng.IntN(2) == 0 {
		q.Family = 6
	}
	from, to := w.twoWorkloads(rng, q.Family)
	q.Src, q.Dst = w.workloadAddr(from, q.Family), w.workloadAddr(to, q.Family)
	switch rng.IntN(20) {
	case 0, 1, 6:
		q.Src = w.otherAddr(rng, q.Family)
	case 2, 3, 7:
		q.Dst = w.otherAddr(rng, q.Family)
	case 4:
		q.Dst = "host/" + w.place(from).node
	case 5:
		q.Src = "host/" + w.place(to).node
	case 8:
		q.Src, q.Dst = w.otherAddr(rng, q.Family), "host/"+w.place(to).node
	case 10:
		q.Src, q.Dst = "host/"+w.place(to).node, w.otherAddr(rng, q.Family)
	}
	switch rng.IntN(10) {
	case 0, 1, 2:
		q.Proto, q.SrcPort = 1, 0
		q.ICMPType = []uint8{8, 8, 8, 3, 13}[rng.IntN(5)]
		if q.Family == 6 {
			q.Proto, q.ICMPType = 58, []uint8{128, 128, 128, 3, 13}[rng.IntN(5)]
		}
		q.ICMPCode = []uint8{0, 0, 0, 1}[rng.IntN(4)]
		return q
	case 3, 4, 5:
		q.Proto = 17
	case 6:
		q.Proto = []uint8{132, 6, 6, 17}[rng.IntN(4)]
	default:
		q.Proto = 6
	}
	q.DstPort = []uint16{80, 80, 80, 443, 53, 53, 8080, 1050, 9999}[rng.IntN(9)]
	if q.Proto == 17 && rng.IntN(8) == 0 {
		q.DstPort = []uint16{4789, 4789, 8472}[rng.IntN(3)] // VXLAN, which workloads must not send, if no setting allows it
		return q
	}
	if strings.HasPrefix(q.Src, "host/") || strings.HasPrefix(q.Dst, "host/") {
		q.DstPort = []uint16{80, 443, 179, 179, 179, 68}[rng.IntN(6)] // failsafe ports among them
	}
	return q
}

// twoWorkloads picks different ones; seldom one that has no address of the
// family, or is not there.
func (w *Cluster) twoWorkloads(rng *rand.Rand, family int) (from, to int) {
	there := func(i int) bool {
		p := w.place(i)
		value := w.store[key("workloadendpoints", p.namespace, p.resource)].Value
		return bytes.Contains(value, []byte(w.workloadAddr(i, family)+"/"))
	}
	for range 6 {
		from = rng.IntN(w.cfg.Workloads)
		to = (from + 1 + rng.IntN(max(1, w.cfg.Workloads-1))) % w.cfg.Workloads
		if there(from) && there(to) {
			break
		}
	}
	return from, to
}

func (w *Cluster) workloadAddr(i, family int) string {
	if p := w.place(i); family == 4 {
		return p.v4
	} else {
		return p.v6
	}
}

// otherAddr is a host's address, or one from outside.
func (w *Cluster) otherAddr(rng *rand.Rand, family int) string {
	v4, v6 := nodeAddrs(1 + rng.IntN(w.cfg.Nodes))
	switch rng.IntN(3) {
	case 0:
		v4, v6 = "203.0.113.5", "2001:db8:ffff::5"
	case 1:
		v4, v6 = fmt.Sprintf("203.0.113.%d", 100+rng.IntN(100)), fmt.Sprintf("2001:db8:ffff::%x", rng.IntN(4))
	}
	if family == 4 {
		return v4
	}
	return v6
}
