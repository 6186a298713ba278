package agent

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/twillnet/twill/internal/dataplane/tunnel"
	"github.com/twillnet/twill/internal/intent"
)

// sized takes how large packets may be.
func (r *reporter) sized(m tunnel.MTU) {
	r.mu.Lock()
	old := r.size
	r.size = m
	r.mu.Unlock()
	if old.Carries != m.Carries || old.Workloads != m.Workloads || old.Link != m.Link {
		r.log.Info("how large packets may be", "between_hosts", m.Carries, "by", m.Link, "of_workloads", m.Workloads)
	}
	if m.Unwritten != "" && m.Unwritten != old.Unwritten {
		r.log.Warn("the size of workloads' packets is not written down for other plugins", "err", m.Unwritten)
	}
}

// mtu is the size of packets of workloads that are attached now, in bytes; zero: it is not known yet.
func (r *reporter) mtu() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size.Workloads
}

// sizes are those of the host's interfaces. What cannot be read is absent.
func (r *reporter) sizes() map[string]int {
	out := map[string]int{}
	if r.links == nil {
		return out
	}
	links, _ := r.links()
	for _, l := range links {
		out[l.Name] = l.MTU
	}
	return out
}

// mtuReport says how large packets may be, and what is larger; sizes are those of interfaces. The caller has the lock.
func (r *reporter) mtuReport(sizes map[string]int) *MTUReport {
	m := r.size
	if m.Carries == 0 {
		return nil
	}
	out := &MTUReport{Interface: m.Link, Carries: m.Carries, Workloads: m.Workloads}
	if m.Link == "" {
		out.Problems = append(out.Problems, fmt.Sprintf("no interface that is up matches mtuIfacePattern or has the host's address: %d bytes are assumed", m.Carries))
	}
	for k := range intent.TunnelKinds {
		fits, size := m.Carries-k.Overhead(), m.Settings.In(k, m.Carries)
		if m.Settings.Wanted[k] && size > fits {
			out.Problems = append(out.Problems, fmt.Sprintf("%s takes packets of %d bytes, and %s leaves it %d: larger ones travel in fragments, or are lost", k, size, cmp.Or(m.Link, "the network"), fits))
		}
	}
	if m.Unwritten != "" {
		out.Problems = append(out.Problems, "the size is not written down for other plugins: "+m.Unwritten)
	}
	var larger []string
	for id, e := range r.tracker.endpoints {
		if size := sizes[e.link]; id.Kind == intent.Workload && size > m.Workloads {
			larger = append(larger, fmt.Sprintf("%s: its interface %s takes packets of %d bytes: make it again, or: ip link set %s mtu %d, and the same within", cmp.Or(e.label, id.String()), e.link, size, e.link, m.Workloads))
		}
	}
	slices.Sort(larger)
	out.Problems = append(out.Problems, larger...)
	return out
}
