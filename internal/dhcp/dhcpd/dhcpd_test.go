package dhcpd

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

const (
	link, mac = "tap11111111-11", "02:00:00:00:00:01"
	subnetKey = "/calico/dhcp/v2/no-region/subnet/s"
)

// site is a host with a machine, and a server for it.
type site struct {
	t           *testing.T
	host, guest *netnstest.NS
	store       *memstore.Store
	log         *journal
}

// journal is a log that a test waits for.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(b)
}

func (j *journal) has(part string) bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Contains(j.text.String(), part)
}

func (j *journal) count(part string) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Count(j.text.String(), part)
}

func newSite(t *testing.T, client string) *site {
	t.Helper()
	machinetest.Program(t, client)
	s := &site{t: t, host: netnstest.New(t), guest: netnstest.New(t), store: memstore.New(), log: &journal{}}
	for _, ns := range []*netnstest.NS{s.host, s.guest} { // so that link-local addresses need not wait for an answer that does not come
		ns.Sysctl("ipv6/conf/default/accept_dad", "0")
	}
	s.host.VethTo(s.guest, link, "eth0")
	s.guest.Run("ip", "link", "set", "eth0", "address", mac)
	// As the agent has it: the host answers ARP for all, and has a route to the machine.
	s.host.Sysctl("ipv4/conf/"+link+"/proxy_arp", "1")
	s.host.Sysctl("ipv4/neigh/"+link+"/proxy_delay", "0")
	s.host.Forward()
	s.host.Addr("lo", "192.0.2.1/32", "192.0.2.99/32", "fd00:99::99/128")
	s.host.Run("ip", "route", "add", "default", "dev", "lo")
	for _, a := range []string{"10.65.0.7", "10.65.0.8", "fd00:65::7", "fd00:65::8", "fd00:65::ff:fe00:1"} {
		s.host.Run("ip", "route", "add", a, "dev", link)
	}
	s.put(api.KeyPrefix(api.KindNode, "")+"h1", `{"kind":"Node","apiVersion":"projectcalico.org/v3","metadata":{"name":"h1"},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Config{Node: "h1", Store: s.store, Lease: time.Hour, In: s.host.Handle(), Log: slog.New(slog.NewTextHandler(s.log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(s.log.text.String())
		}
	})
	return s
}

func (s *site) put(key, value string) {
	s.t.Helper()
	if err := datastore.Put(s.t.Context(), s.store, api.Update{Key: key, Value: []byte(value)}); err != nil {
		s.t.Fatal(err)
	}
}

const endpointName = "h1-openstack-vm-p"

// endpoint stores the machine's, with an address; empty: deletes it.
func (s *site) endpoint(address string) {
	s.t.Helper()
	key := api.KeyPrefix(api.KindWorkloadEndpoint, "openstack") + endpointName
	if address == "" {
		if err := s.store.Delete(s.t.Context(), key, api.Revision{}); err != nil {
			s.t.Fatal(err)
		}
		return
	}
	s.put(key, fmt.Sprintf(`{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"namespace":"openstack","annotations":{"openstack.projectcalico.org/network-id":"n","openstack.projectcalico.org/fqdn":"web.example.org."}},
		"spec":{"orchestrator":"openstack","workload":"vm","node":"h1","endpoint":"p","interfaceName":%q,"mac":%q,"ipNetworks":["%s"]}}`, endpointName, link, mac, address))
}

func (s *site) subnet(more string) {
	s.t.Helper()
	s.put(subnetKey, `{"network_id":"n","cidr":"10.65.0.0/24","gateway_ip":"10.65.0.1","host_routes":[]`+more+`}`)
}

// script is what udhcpc calls: it notes what it has, and configures the interface.
const script = `#!/bin/sh
[ "$1" = deconfig ] && exit 0
if [ "$1" = bound ]; then
	ip addr flush dev eth0
	ip addr add "$ip/$mask" dev eth0
	[ -z "$router" ] || ip route add default via "$router"
fi
echo "$1 ip=$ip mask=$subnet router=$router dns=$dns mtu=$mtu host=$hostname domain=$domain routes=$staticroutes server=$serverid" >>NOTES
`

// options are those of udhcpc, which notes in a file what it has.
func options(t *testing.T, dir, file string) []string {
	t.Helper()
	path := filepath.Join(dir, "script")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(script, "NOTES", file)), 0o755); err != nil {
		t.Fatal(err)
	}
	return []string{"-i", "eth0", "-T", "1", "-s", path, "-O", "mtu", "-O", "staticroutes", "-O", "hostname", "-O", "domain"}
}

// once runs a client on the machine until it has an address, and returns what it noted; it gives up after so many requests.
func (s *site) once(tries int) (notes string, err error) {
	s.t.Helper()
	dir := s.t.TempDir()
	file := filepath.Join(dir, "notes")
	out, err := s.guest.Handle().Output(s.t.Context(), "udhcpc", append([]string{"-f", "-n", "-q", "-t", fmt.Sprint(tries)}, options(s.t, dir, file)...)...)
	b, _ := os.ReadFile(file) // there is none if it has got nothing
	if err != nil {
		err = fmt.Errorf("%w: %s", err, out)
	}
	return string(b), err
}

func (s *site) wantLease(want ...string) {
	s.t.Helper()
	notes, err := s.once(20)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, part := range want {
		if !strings.Contains(notes, part) {
			s.t.Errorf("the machine has not %q: %s", part, notes)
		}
	}
}

// wantNothing asks until the log says why there is no answer, since silence has no end.
func (s *site) wantNothing(why string) {
	s.t.Helper()
	for tries := 3; ; tries = 1 {
		if notes, err := s.once(tries); err == nil {
			s.t.Fatalf("the machine has %s", notes)
		}
		if s.log.has(why) {
			return
		}
	}
}

func TestAMachineGetsItsAddress(t *testing.T) {
	s := newSite(t, "udhcpc")
	s.endpoint("10.65.0.7/32")
	s.subnet(`,"dns_servers":["192.0.2.53"]`)
	c := s.running()
	c.until("bound ip=10.65.0.7 mask=255.255.255.0 router=10.65.0.1 dns=192.0.2.53 mtu=1500 host=web domain=example.org routes= server=192.0.2.1", false)
	addr := netip.MustParseAddr
	if err := s.guest.Ping(addr("10.65.0.7"), addr("192.0.2.99"), time.Now().Add(patience)); err != nil {
		t.Error(err)
	}

	// What the subnet has counts when the machine asks again, which it does by unicast.
	s.subnet(`,"dns_servers":["192.0.2.54"],"host_routes":[{"destination":"10.9.0.0/16","nexthop":"10.65.0.9"}]`)
	c.until("renew ip=10.65.0.7 mask=255.255.255.0 router=10.65.0.1 dns=192.0.2.54 mtu=1500 host=web domain=example.org routes=10.9.0.0/16 10.65.0.9 0.0.0.0/0 10.65.0.1 ", true)

	// Its port has another address: the one that it has is refused, and it asks for another at once.
	s.endpoint("10.65.0.8/32")
	c.until("nak ", true)
	c.until("bound ip=10.65.0.8", false)
	if err := s.guest.Ping(addr("10.65.0.8"), addr("192.0.2.99"), time.Now().Add(patience)); err != nil {
		t.Error(err)
	}
}

// client is one that stays on the machine.
type client struct {
	t     *testing.T
	cmd   *exec.Cmd
	notes *bufio.Scanner
}

// running starts a client.
func (s *site) running() *client {
	s.t.Helper()
	dir := s.t.TempDir()
	pipe := filepath.Join(dir, "notes")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		s.t.Fatal(err)
	}
	notes, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	cmd, err := s.guest.Handle().Exec(s.t.Context(), "udhcpc", append([]string{"-f", "-t", "20"}, options(s.t, dir, pipe)...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
		_ = notes.Close()
	})
	return &client{s.t, cmd, bufio.NewScanner(notes)}
}

// until waits until the client notes something; renew: asks it to renew its address until then, since the server follows the datastore on its own.
func (c *client) until(note string, renew bool) {
	c.t.Helper()
	for {
		if renew {
			if err := c.cmd.Process.Signal(syscall.SIGUSR1); err != nil {
				c.t.Fatal(err)
			}
		}
		if !c.notes.Scan() {
			c.t.Fatal(c.notes.Err())
		}
		if strings.HasPrefix(c.notes.Text(), note) {
			return
		}
		if !renew && strings.HasPrefix(c.notes.Text(), "bound ") {
			c.t.Fatalf("it has %s, want %s", c.notes.Text(), note)
		}
	}
}

func TestWhatIsNotTheEndpointsGetsNothing(t *testing.T) {
	s := newSite(t, "udhcpc")
	s.endpoint("10.65.0.7/32")
	s.subnet("")
	s.wantLease("bound ip=10.65.0.7")

	s.guest.Run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:02")
	s.wantNothing("the hardware address is not the endpoint's")
	s.guest.Run("ip", "link", "set", "eth0", "address", mac)
	s.wantLease("bound ip=10.65.0.7")

	if err := s.store.Delete(t.Context(), subnetKey, api.Revision{}); err != nil {
		t.Fatal(err)
	}
	for !s.log.has("is in a subnet with DHCP") { // the server follows the datastore on its own
		_, _ = s.once(1)
	}
	s.wantNothing("is in a subnet with DHCP")

	s.subnet("")
	s.wantLease("bound ip=10.65.0.7")
	s.endpoint("")
	for { // the same
		if _, err := s.once(3); err != nil {
			break
		}
	}
}
