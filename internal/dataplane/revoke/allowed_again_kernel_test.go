package revoke_test

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestAFlowThatIsAllowedAgainCarriesBeforeTheTableIsRead: what a change had cut carries in both directions, though the kernel's table of connections
// cannot be read.
func TestAFlowThatIsAllowedAgainCarriesBeforeTheTableIsRead(t *testing.T) {
	for _, family := range [][2]string{{"10.65.0.1", "10.65.0.2"}, {"fd65::a", "fd65::b"}} {
		for _, compiled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, compiled %v", family[0], compiled), func(t *testing.T) {
				l := newLooped(t, family[0], family[1])
				first := policy()
				first.Host = &intent.HostSettings{Compiled: compiled}
				l.begin(first)
				forth, back := l.datagramFlow(datagrams)
				tcp, other := l.dial(quiet), l.dial(allowed)
				l.lives(tcp, "before")
				for _, egress := range []bool{false, true} {
					deny := policy(denied(17, datagrams), denied(6, quiet))
					if p := &deny.Policies[0]; egress {
						p.Ingress, p.Egress = p.Egress, p.Ingress
					}
					l.batches <- deny
					l.passed()
					if forth.arrive(t, 20, netnstest.Silence) > 0 || back.arrive(t, 20, netnstest.Silence) > 0 {
						t.Error("what is denied and marked arrives")
					}
					l.table.fails.Store(true)
					l.batches <- policy()
					await(t, "what is allowed again arrives", func() bool {
						return forth.arrive(t, 1, netnstest.Silence) == 1 && back.arrive(t, 1, netnstest.Silence) == 1
					})
					l.lives(tcp, "allowed again")
					l.lives(other, "what was always allowed")
					l.table.fails.Store(false)
					for x := range l.passes {
						if x.Err == nil {
							break
						}
					}
				}
			})
		}
	}
}
