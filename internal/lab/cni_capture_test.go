package lab

import (
	"bytes"
	"net/netip"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/packet"
)

// capturedFromBefore: another workload sends to a container's address before there is a container, while ADD runs and after.
// What policy denies never comes out of the container's link; what it allows does, from the first packet after ADD on.
func capturedFromBefore(t *testing.T, r *caller) {
	l := r.list("net", `{"type": "calico-ipam"}`)
	client := r.container()
	r.add(l, client)
	defer r.del(l, client)
	defer r.onlyPort80()()
	var out *packet.Host
	client.Do(func() { out = must2(packet.OpenHost())(t) })
	defer out.Close()
	for i := range 10 {
		r.captured(l, client, out, netip.AddrFrom4([4]byte{10, 66, 99, byte(i)}))
	}
}

// captured is one container of capturedFromBefore.
func (r *caller) captured(l *libcni.NetworkConfigList, client *container, out *packet.Host, dst netip.Addr) {
	t := r.t
	t.Helper()
	c := r.container()
	c.conf.Args = [][2]string{{"IgnoreUnknown", "1"}, {"IP", dst.String()}}
	var in *packet.Socket
	c.Do(func() { in = must2(packet.Open())(r.t) })
	seq := uint16(1000)
	pace := time.NewTicker(between / 4) // more would fill the kernel's backlog on a busy machine, and lose what policy allows
	send := func() {
		<-pace.C
		for _, port := range []uint16{81, 80} {
			must(t, out.Send(packet.Packet{Src: client.addrs[0], Dst: dst, Proto: 6, SrcPort: seq, DstPort: port}))
		}
		seq++
	}
	added := make(chan struct{})
	go func() {
		defer close(added)
		r.add(l, c)
	}()
	for running := true; running; {
		select {
		case <-added:
			running = false
		default:
			send()
		}
	}
	first := seq
	for range 100 {
		send()
	}
	pace.Stop()
	defer r.del(l, c)
	defer func() {
		if t.Failed() {
			t.Logf("what the host knows of %s:\n%s", dst, r.show(dst))
		}
	}()
	wantCaptured(t, in, client.addrs[0], first, seq)
	must(t, in.Close())
}

// show is what a host knows of an address, and which rules of it have counted packets.
func (r *caller) show(dst netip.Addr) string {
	var out bytes.Buffer
	for _, line := range []string{"ip route get " + dst.String(), "ip neigh show " + dst.String(), "ip -s link", "nft list table inet twill"} {
		words := strings.Fields(line)
		cmd := exec.Command(words[0], words[1:]...)
		var output bytes.Buffer
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := r.host.ns.Start(cmd); err == nil {
			_ = cmd.Wait()
		}
		for text := range strings.Lines(output.String()) {
			if words[0] != "nft" || strings.Contains(text, "counter packets") && !strings.Contains(text, "packets 0 ") {
				out.WriteString(text)
			}
		}
	}
	return out.String()
}

// wantCaptured reads what came from src: all source ports from first to before end, and nothing but to port 80.
func wantCaptured(t testing.TB, in *packet.Socket, src netip.Addr, first, end uint16) {
	t.Helper()
	missing := map[uint16]bool{}
	for s := first; s < end; s++ {
		missing[s] = true
	}
	for len(missing) > 0 {
		p, ok, err := in.Receive(time.Now().Add(netnstest.Patience))
		must(t, err)
		switch {
		case !ok:
			t.Fatalf("of the packets after ADD %d were lost", len(missing))
		case p.Src == src && p.DstPort != 80:
			t.Fatalf("what policy denies came: %+v", p)
		}
		delete(missing, p.SrcPort)
	}
}
