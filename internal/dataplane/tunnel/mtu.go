package tunnel

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// unknownMTU is what a host carries of which no interface says it, in bytes: the least of the large clouds' networks, and upstream's.
const unknownMTU = 1460

// largestMTU is what the length of a packet allows (RFC 791, RFC 8200).
const largestMTU = 65535

// meter says what a host's interfaces carry.
type meter struct {
	settings intent.MTUSettings
	prefixes []string  // of workloads' interfaces
	tunnels  [2]string // names of WireGuard devices
	names    *regexp.Regexp
	stale    bool

	link    string          // the interface with the smallest MTU; empty: none counts
	carries int             // bytes
	counted map[string]bool // interfaces
}

// configure takes settings, and reports whether they are others.
func (m *meter) configure(h intent.HostSettings) bool {
	if m.names != nil && m.settings == h.MTU && slices.Equal(m.prefixes, h.Prefixes) && m.tunnels == h.WireGuard.Link {
		return false
	}
	m.settings, m.prefixes, m.tunnels = h.MTU, h.Prefixes, h.WireGuard.Link
	var err error
	if m.names, err = regexp.Compile(h.MTU.Links); err != nil { // settings refuse it before
		m.names = regexp.MustCompile(`^\b$`)
	}
	return true
}

// counts reports whether an interface leads to other hosts. Loopback, tunnels and workloads' interfaces do not, whatever the pattern says.
func (m *meter) counts(l ifmon.Link) bool {
	if l.Name == "lo" || m.names == nil || slices.ContainsFunc(m.prefixes, func(p string) bool { return strings.HasPrefix(l.Name, p) }) {
		return false
	}
	for k := range intent.TunnelKinds {
		if l.Name == k.Link() || l.Name == m.tunnels[0] || l.Name == m.tunnels[1] {
			return false
		}
	}
	own := slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == m.settings.Own[0] || p.Addr() == m.settings.Own[1] })
	return own || m.names.MatchString(l.Name)
}

// concerns reports whether a change of an interface may change what the host carries.
func (m *meter) concerns(c ifmon.Change) bool {
	return m.counted[c.Name] || !c.Gone && m.counts(c.Link)
}

// read asks the kernel.
func (m *meter) read(h *rtnl.Handle) error {
	links, err := ifmon.List(h)
	if err != nil {
		return err
	}
	m.link, m.carries, m.counted = "", 0, map[string]bool{}
	for _, c := range links {
		if !m.counts(c.Link) {
			continue
		}
		m.counted[c.Name] = true
		if c.Up && (m.carries == 0 || c.MTU < m.carries) {
			m.link, m.carries = c.Name, c.MTU
		}
	}
	if m.carries == 0 {
		m.carries = unknownMTU
	}
	m.carries, m.stale = min(m.carries, largestMTU), false
	return nil
}

// in is the largest packet in a tunnel of a kind.
func (m *meter) in(k intent.TunnelKind) int { return m.settings.In(k, m.carries) }

// MTU is how large packets may be, in bytes.
type MTU struct {
	Link      string // the interface that leads to other hosts and carries the least; empty: none does, and Carries is assumed
	Carries   int    // packets between hosts
	Workloads int    // packets of new workloads
	Unwritten string // why that is not in Config.MTUFile; empty: it is
	Settings  intent.MTUSettings
}

// measure brings what the interfaces carry up to date, and has it written down once all is known that it depends on.
func (d *Driver) measure() error {
	if !d.mtu.stale || !d.settled {
		return nil
	}
	if err := d.mtu.read(d.rtnl); err != nil {
		return err
	}
	for _, v := range d.devices {
		v.check = true
	}
	for _, w := range d.wg {
		w.check = true
	}
	if !d.inSync {
		return nil
	}
	is := MTU{Link: d.mtu.link, Carries: d.mtu.carries, Workloads: d.mtu.settings.Workloads(d.mtu.carries), Settings: d.mtu.settings}
	if d.cfg.MTUFile != "" {
		if err := write(d.cfg.MTUFile, strconv.Itoa(is.Workloads)); err != nil {
			is.Unwritten = err.Error()
		}
	}
	if is != d.last && d.cfg.Notify != nil {
		d.cfg.Notify(is)
	}
	d.last = is
	return nil
}

// write makes a text the content of a file, at once, so that nobody reads half of it; its directory is made if it is not there.
func write(path, text string) (err error) {
	if was, err := os.ReadFile(path); err == nil && string(was) == text {
		return nil
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".mtu-")
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
	return err
}
