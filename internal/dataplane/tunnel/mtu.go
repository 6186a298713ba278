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
	ran     map[int]bool    // indexes of those that have had a carrier since they are up
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
	return m.own(l) || m.names.MatchString(l.Name)
}

// own reports whether an interface has one of this host's own addresses.
func (m *meter) own(l ifmon.Link) bool {
	return slices.ContainsFunc(l.Addrs, func(p netip.Prefix) bool { return p.Addr() == m.settings.Own[0] || p.Addr() == m.settings.Own[1] })
}

// concerns reports whether a change of an interface may change what the host carries.
func (m *meter) concerns(c ifmon.Change) bool {
	return m.counted[c.Name] || !c.Gone && m.counts(c.Link)
}

// read asks the kernel. Of the interfaces that count, those are left out that nobody has plugged in, and those that are parts of another, such as a
// bridge, that does not count: unless none is left, or it has the host's address. One that had a carrier counts until it is turned off: what
// workloads got must not follow each pull of a cable.
func (m *meter) read(h *rtnl.Handle) error {
	links, err := ifmon.List(h)
	if err != nil {
		return err
	}
	all, err := h.Links()
	if err != nil {
		return err
	}
	masters, names, ran := map[int]int{}, map[int]string{}, map[int]bool{}
	joins := map[int]bool{} // not a VRF, nor what a switch of its own has for one
	for _, l := range all {
		joins[l.Index] = l.Kind == "bridge" || l.Kind == "bond" || l.Kind == "team"
	}
	for _, l := range all {
		if joins[l.Master] {
			masters[l.Index] = l.Master
		}
	}
	m.counted = map[string]bool{}
	for _, c := range links {
		names[c.Index] = c.Name
		ran[c.Index] = c.Up && (c.Running || m.ran[c.Index])
		if m.counts(c.Link) {
			m.counted[c.Name] = true
		}
	}
	m.ran = ran
	part := func(index int) (is bool) {
		for range all { // a bond may be a part of a bridge
			if index = masters[index]; index == 0 {
				return is
			}
			if is = true; m.counted[names[index]] {
				return false
			}
		}
		return is
	}
	if !m.least(links, func(l ifmon.Link) bool { return m.own(l) || ran[l.Index] && !part(l.Index) }) {
		m.least(links, func(ifmon.Link) bool { return true })
	}
	if m.carries == 0 {
		m.carries = unknownMTU
	}
	m.carries, m.stale = min(m.carries, largestMTU), false
	return nil
}

// least takes the interface that carries the least, of those that count, are up, and fit. It reports whether there is one.
func (m *meter) least(links []ifmon.Change, fits func(ifmon.Link) bool) bool {
	m.link, m.carries = "", 0
	for _, c := range links {
		if m.counted[c.Name] && c.Up && fits(c.Link) && (m.carries == 0 || c.MTU < m.carries) {
			m.link, m.carries = c.Name, c.MTU
		}
	}
	return m.carries != 0
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
