package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// pod says in CNI_ARGS which pod a container is.
func (c *container) pod(name string) *container {
	c.conf.Args = [][2]string{{"IgnoreUnknown", "1"}, {"K8S_POD_NAMESPACE", "prod"}, {"K8S_POD_NAME", name}}
	return c
}

// again is the same container with another interface, or in another namespace.
func (c *container) again(ifname string) *container {
	conf := *c.conf
	conf.IfName = ifname
	return &container{NS: c.NS, conf: &conf}
}

// allowAll makes a profile that allows everything; undo takes that back.
func (r *caller) allowAll(profile string) (undo func()) {
	r.t.Helper()
	store, err := r.store(r.t.Context())
	must(r.t, err)
	u := api.Update{Key: key(api.KindProfile, "", profile), Value: fmt.Appendf(nil, `{"kind":"Profile","apiVersion":"projectcalico.org/v3","metadata":{"name":%q},"spec":{"ingress":[{"action":"Allow"}],"egress":[{"action":"Allow"}]}}`, profile)}
	_, err = store.Create(r.t.Context(), u)
	must(r.t, err)
	return func() {
		must(r.t, store.Delete(r.t.Context(), u.Key, api.Revision{}))
		store.Close()
	}
}

// lateDel: the old sandbox of a pod is deleted when the new one is there, or is being made: then the link has no alias yet.
func lateDel(t *testing.T, r *caller) {
	l := r.list("net", both)
	defer r.allowAll("kns.prod")()
	old, now, peer := r.container().pod("web"), r.container().pod("web"), r.container().pod("peer")
	r.add(l, old)
	r.add(l, peer)
	r.add(l, now)
	r.del(l, old)
	now.reaches(t, peer, 80)
	name := linkOf(t, r, now)
	near := r.link(name)
	alias := near.Alias
	must(t, r.host.nl.SetAlias(near.Index, ""))
	r.del(l, old)
	if again, err := r.host.nl.Link(name); err != nil || again.Index != near.Index {
		t.Fatalf("the old sandbox's DEL took the new one's link: %v", err)
	}
	now.reaches(t, peer, 80)
	must(t, r.host.nl.SetAlias(near.Index, alias))
	r.del(l, now)
	r.del(l, peer)
}

func linkOf(t *testing.T, r *caller, c *container) string {
	t.Helper()
	links, err := r.host.nl.Links()
	must(t, err)
	i := slices.IndexFunc(links, func(l rtnl.Link) bool { return strings.Contains(l.Alias, c.conf.ContainerID) })
	if i < 0 {
		t.Fatalf("no link of container %s", c.conf.ContainerID)
	}
	return links[i].Name
}

// staleNote: what was noted of a container while no agent ran does not detach it when it has been attached again.
func staleNote(t *testing.T, r *caller) {
	l := r.list("net", both)
	a, b := r.container(), r.container()
	r.add(l, a)
	r.add(l, b)
	text, err := json.Marshal(wire.Ref{Network: "net", ContainerID: a.conf.ContainerID, Ifname: "eth0"})
	must(t, err)
	notes := wire.NotesOf(r.AgentSocket("h1"))
	must(t, os.MkdirAll(notes, 0o700))
	a.Delete("eth0") // and the agent is asked before it has looked at the note
	path := filepath.Join(notes, "earlier.json")
	must(t, os.WriteFile(path+".new", text, 0o600))
	must(t, os.Rename(path+".new", path))
	r.add(l, a)
	await(t, "the note is worked off", func() bool { _, err := os.Stat(path); return os.IsNotExist(err) })
	a.reaches(t, b, 80)
	must(t, r.in(func() error { return r.cni.CheckNetworkList(t.Context(), l, a.conf) }))
	r.del(l, a)
	r.del(l, b)
}

// ipamAlone: containers of another main plugin have no endpoints; that proves nothing about their addresses.
func ipamAlone(name string) func(*testing.T, *caller) {
	return func(t *testing.T, r *caller) { r.ipamAlone(t, name) }
}

func (r *caller) ipamAlone(t *testing.T, name string) {
	l, err := libcni.NetworkConfFromBytes(fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "bridged", "plugins": [{"type": "bridge", "bridge": "twbr0", "socket": %q, "ipam": {"type": %q}}]}`, r.AgentSocket("h1"), name))
	must(t, err)
	a, b := r.container(), r.container().pod("web")
	must(t, r.host.nl.AddBridge("twbr0"))
	bridge := r.link("twbr0").Index
	defer func() { must(t, r.host.nl.DeleteLink(bridge)) }()
	must(t, r.host.nl.SetMAC(bridge, "02:00:00:00:00:0b")) // else it changes with its ports, and CHECK compares it
	r.add(l, a)
	r.add(l, b)
	store, err := r.store(t.Context())
	must(t, err)
	defer store.Close()
	all := ipam.New(store, ipam.Config{})
	later := ipam.CheckOptions{Now: time.Now().Add(24 * time.Hour)}
	look := func() []ipam.Finding {
		v, err := all.ReadSurvey(t.Context())
		must(t, err)
		return v.Check(later)
	}
	first := look()
	for _, f := range all.Repair(t.Context(), ipam.Both(first, look())) {
		t.Errorf("check --fix: %s %s: %v", f.Address, f.Proof, f.Err)
	}
	kept := 0
	for _, f := range look() {
		if strings.Contains(f.Kept, "nothing proves that it is leaked: look on h1 whether") {
			kept++
		}
	}
	if kept != 2 {
		t.Errorf("%d addresses are kept with the reason, want 2", kept)
	}
	must(t, r.checkIPAM(a, name))
	more := a.again("net1")
	r.add(l, more)
	if len(more.addrs) != 1 || more.addrs[0] == a.addrs[0] {
		t.Errorf("the second interface has %v, the first %v", more.addrs, a.addrs)
	}
	r.del(l, more)
	must(t, r.checkIPAM(a, name))
	_, err = all.Release(t.Context(), ipam.Release{Addr: a.addrs[0]})
	must(t, err)
	if err := r.checkIPAM(a, name); err == nil || !strings.Contains(err.Error(), "is not assigned to the interface eth0") {
		t.Errorf("CHECK of an address that was released: %v", err)
	}
	r.del(l, a)
	r.del(l, b)
}

// checkIPAM is CHECK of the IPAM plugin alone: Debian's bridge wants a gateway, which our addresses do not have.
func (r *caller) checkIPAM(c *container, name string) error {
	r.t.Helper()
	conf := fmt.Appendf(nil, `{"cniVersion": "1.0.0", "name": "bridged", "type": "bridge", "socket": %q, "ipam": {"type": %q}, "prevResult": {"cniVersion": "1.0.0", "ips": [{"address": "%s/32"}]}}`,
		r.AgentSocket("h1"), name, c.addrs[0])
	cmd := r.plugin(c, conf, "CHECK")
	cmd.Path = filepath.Join(filepath.Dir(cmd.Path), name)
	cmd.Args[0] = cmd.Path
	var out bytes.Buffer
	cmd.Stdout = &out
	must(r.t, r.host.ns.Start(cmd))
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w: %s", err, out.String())
	}
	return nil
}
