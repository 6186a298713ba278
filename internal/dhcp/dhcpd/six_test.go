package dhcpd

import (
	"bufio"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

const subnet6Key = "/calico/dhcp/v2/no-region/subnet/s6"

func (s *site) subnet6(more string) {
	s.t.Helper()
	s.put(subnet6Key, `{"network_id":"n","cidr":"fd00:65::/64","host_routes":[]`+more+`}`)
}

// script6 is what dhclient calls: it notes what it has, and configures the interface.
const script6 = `#!/bin/sh
case $reason in
BOUND6 | RENEW6 | REBIND6) ip addr replace "$new_ip6_address/128" dev eth0 ;;
esac
case $reason in
RELEASE6 | EXPIRE6 | DEPREF6) ip addr del "$old_ip6_address/128" dev eth0 ;;
esac
echo "$reason ip=$new_ip6_address life=$new_max_life/$new_preferred_life dns=$new_dhcp6_name_servers domain=$new_dhcp6_domain_search" >>NOTES
`

// client6 is a dhclient on the machine, and the directory of its leases.
type client6 struct {
	s     *site
	dir   string
	cmd   *exec.Cmd
	notes *bufio.Scanner

	remembers bool // it began with a lease
}

// client6 starts a client that remembers nothing.
func (s *site) client6() *client6 {
	s.t.Helper()
	c := &client6{s: s, dir: s.t.TempDir()}
	pipe := filepath.Join(c.dir, "notes")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		s.t.Fatal(err)
	}
	notes, err := os.OpenFile(pipe, os.O_RDWR, 0)
	if err != nil {
		s.t.Fatal(err)
	}
	c.notes = bufio.NewScanner(notes)
	for name, text := range map[string]string{"script": strings.ReplaceAll(script6, "NOTES", pipe), "conf": ""} {
		if err := os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o755); err != nil {
			s.t.Fatal(err)
		}
	}
	s.t.Cleanup(func() {
		c.stop()
		_ = notes.Close()
	})
	c.start()
	return c
}

func (c *client6) start() {
	c.s.t.Helper()
	in := func(name string) string { return filepath.Join(c.dir, name) }
	var err error
	if c.cmd, err = c.s.guest.Handle().Exec(c.s.t.Context(), "dhclient", "-6", "-d", "-sf", in("script"), "-cf", in("conf"), "-lf", in("leases"), "-pf", in("pid"), "eth0"); err != nil {
		c.s.t.Fatal(err)
	}
}

func (c *client6) stop() {
	_ = c.cmd.Process.Kill()
	_ = c.cmd.Wait() // it was killed
}

// until waits until the client notes something that matches, and no other lease but one that it remembers.
func (c *client6) until(note string) {
	c.s.t.Helper()
	want := regexp.MustCompile("^" + note)
	for c.notes.Scan() {
		if text := c.notes.Text(); want.MatchString(text) {
			return
		} else if strings.HasPrefix(text, "BOUND6") && !c.remembers {
			c.s.t.Fatalf("it has %s, want %s", text, note)
		}
	}
	c.s.t.Fatal(c.notes.Err())
}

var renews = regexp.MustCompile(`renew \d+;`)

// again has the client begin again with the lease that it remembers, whose time to renew has come.
func (c *client6) again() {
	c.s.t.Helper()
	c.stop()
	file := filepath.Join(c.dir, "leases")
	b, err := os.ReadFile(file)
	if err != nil || !renews.Match(b) {
		c.s.t.Fatalf("%v: %s", err, b)
	}
	if err := os.WriteFile(file, renews.ReplaceAll(b, []byte("renew 1;")), 0o600); err != nil {
		c.s.t.Fatal(err)
	}
	c.remembers = true
	c.start()
}

// patience is how long what should come may take on a busy machine, while routers wait 3 s between advertisements (RFC 4861, 6.2.6).
const patience = 3 * time.Minute

// ping6 waits until the machine reaches what is beyond its host, by the route that its router advertised.
func (s *site) ping6(from string) {
	s.t.Helper()
	s.shows(true, " "+from+"/", "-6", "addr", "show", "eth0")
	s.shows(false, "tentative", "-6", "addr", "show", "eth0") // the kernel makes an address one, if only for a moment, and it cannot be a source then
	if err := s.guest.Ping(netip.MustParseAddr(from), netip.MustParseAddr("fd00:99::99"), time.Now().Add(patience)); err != nil {
		s.t.Errorf("%v; its routes: %s", err, s.guest.Run("ip", "-6", "route"))
	}
}

// shows waits until ip shows something of the machine, or does not any more.
func (s *site) shows(want bool, part string, args ...string) {
	s.t.Helper()
	for until := time.Now().Add(patience); strings.Contains(s.guest.Run("ip", args...), part) != want; {
		if time.Now().After(until) {
			s.t.Fatalf("ip %s shows %q: %v, want %v: %s", strings.Join(args, " "), part, !want, want, s.guest.Run("ip", args...))
		}
	}
}

func TestAMachineGetsItsIPv6Address(t *testing.T) {
	s := newSite(t, "dhclient")
	s.endpoint("fd00:65::7/128")
	s.subnet6(`,"gateway_ip":"fd00:65::1","dns_servers":["fd00::53"]`)
	c := s.client6()
	c.until(`BOUND6 ip=fd00:65::7 life=3600/3600 dns=fd00::53 domain=example\.org`)
	s.ping6("fd00:65::7")

	// What the subnet has counts when the machine renews its address.
	s.subnet6(`,"gateway_ip":"fd00:65::1","dns_servers":["fd00::54"]`)
	for note := ""; !strings.Contains(note, "fd00::54"); note = c.notes.Text() {
		c.again()
		c.until(`RENEW6 ip=fd00:65::7`)
	}

	// Its port has another address: the one that it remembers is refused, and it asks for another at once.
	s.endpoint("fd00:65::8/128")
	for !strings.Contains(c.notes.Text(), "ip=fd00:65::8") {
		c.again()
		c.until("(RENEW6|BOUND6) ")
	}
	s.ping6("fd00:65::8")

	// Another's hardware address gets nothing.
	c.stop()
	s.guest.Run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:02")
	s.guest.Run("ip", "-6", "route", "flush", "default")
	c = s.client6()
	for !s.log.has("mac=02:00:00:00:00:02") {
		if _, err := os.Stat("/proc/" + strconv.Itoa(c.cmd.Process.Pid)); err != nil {
			t.Fatal("the client has ended")
		}
	}
	// It is answered as soon as it has the right one again, and notes nothing before.
	s.guest.Run("ip", "link", "set", "eth0", "address", mac)
	c.until(`BOUND6 ip=fd00:65::8 `)
}

func TestAMachineReceivesItsRouter(t *testing.T) {
	const ownAddress, router = "fd00:65::ff:fe00:1/64", "via fe80::"
	s := newSite(t, "ip")
	s.guest.Sysctl("ipv6/conf/eth0/accept_ra", "2")
	s.endpoint("fd00:65::ff:fe00:1/128")
	s.subnet6(`,"gateway_ip":"fd00:65::1","ipv6_ra_mode":"slaac","ipv6_address_mode":"slaac"`)
	s.shows(true, router, "-6", "route", "show", "default")
	s.shows(true, ownAddress, "-6", "addr", "show", "eth0")
	s.shows(false, "fd00:65::/64", "-6", "route") // no neighbour is on its link
	s.ping6("fd00:65::ff:fe00:1")

	// Another's hardware address has no router, though it asks, and the interface comes up.
	s.guest.Run("ip", "link", "set", "eth0", "down")
	s.guest.Run("ip", "link", "set", "eth0", "address", "02:00:00:00:00:02")
	sent := s.log.count("msg=advertised")
	s.guest.Run("ip", "link", "set", "eth0", "up")
	for until := time.Now().Add(patience); !s.log.has("mac=02:00:00:00:00:02") || s.log.count("msg=advertised") == sent; {
		if time.Now().After(until) {
			t.Fatal("it did not ask, or its host advertises nothing")
		}
	}
	s.shows(false, router, "-6", "route", "show", "default")
	s.guest.Run("ip", "link", "set", "eth0", "down")
	s.guest.Run("ip", "link", "set", "eth0", "address", mac)
	s.guest.Run("ip", "link", "set", "eth0", "up")
	s.shows(true, router, "-6", "route", "show", "default")

	// A subnet without a gateway, and none at all.
	s.subnet6(`,"gateway_ip":null,"ipv6_ra_mode":"slaac"`)
	s.shows(false, router, "-6", "route", "show", "default")
	s.subnet6(`,"gateway_ip":"fd00:65::1","ipv6_ra_mode":"slaac"`)
	s.shows(true, router, "-6", "route", "show", "default")
	if err := s.store.Delete(t.Context(), subnet6Key, api.Revision{}); err != nil {
		t.Fatal(err)
	}
	s.shows(false, router, "-6", "route", "show", "default")
	s.shows(true, "deprecated", "-6", "addr", "show", "eth0")

	// The machine starts again, on another interface of that name.
	s.subnet6(`,"gateway_ip":"fd00:65::1","ipv6_ra_mode":"slaac"`)
	s.host.Delete(link)
	s.host.VethTo(s.guest, link, "eth0")
	s.guest.Sysctl("ipv6/conf/eth0/accept_ra", "2")
	s.guest.Run("ip", "link", "set", "eth0", "address", mac)
	s.shows(true, router, "-6", "route", "show", "default")
}
