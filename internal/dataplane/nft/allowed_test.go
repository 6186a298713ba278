package nft

import (
	"net"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// receive listens outside of the host to packets of an IP protocol.
func (h *hosted) receive(t *testing.T, protocol string) net.Conn {
	t.Helper()
	var c *net.IPConn
	var err error
	h.out.Do(func() { c, err = net.ListenIP(protocol, nil) })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// What is dropped by default and a setting lets pass: the setting, and packets of that kind from a workload.
func TestSettingsLetPassWhatIsElseDropped(t *testing.T) {
	for _, tt := range []struct {
		name, counter string
		protocol      string
		packet        []byte
		allow         intent.HostSettings
	}{
		{
			"IPIP", "IPIP from a workload", "ip4:4",
			append([]byte{0x45, 0, 0, 20, 0, 0, 0, 0, 64, 59}, make([]byte, 10)...),
			intent.HostSettings{AllowIPIP: true},
		},
		{"what conntrack calls invalid", "invalid", "ip4:tcp", append([]byte{12: 5 << 4, 13: 4}, make([]byte, 6)...), intent.HostSettings{AllowInvalid: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			h := newHosted(t)
			in := h.receive(t, tt.protocol)
			send := func() {
				h.party("a").Do(func() {
					c, err := net.Dial(tt.protocol, addrs["out"][0])
					if err != nil {
						t.Error(err)
						return
					}
					defer c.Close()
					if _, err := c.Write(tt.packet); err != nil {
						t.Error(err)
					}
				})
			}
			h.d.Merge(pair(nil))
			apply(t, h.d)
			send()
			if n := h.droppedNow(t, tt.counter, 1); n != 1 {
				t.Errorf("by default %d were dropped, want 1", n)
			}
			h.d.Merge(intent.Batch{Host: &tt.allow})
			apply(t, h.d)
			send()
			if err := in.SetReadDeadline(time.Now().Add(netnstest.Patience)); err != nil {
				t.Fatal(err)
			}
			if _, err := in.Read(make([]byte, 100)); err != nil {
				t.Errorf("with %+v nothing came: %v", tt.allow, err)
			}
		})
	}
}
