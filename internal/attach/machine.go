package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/translate"
)

// attributeContainer is, with an address of a virtual machine, the container of its pod: the handle does not say it.
const attributeContainer = "container"

// launcher is how the names of all pods begin in which KubeVirt runs virtual machines.
const launcher = "virt-launcher-"

// machine is the virtual machine of a pod that is attached: the addresses are the machine's, and stay when the pod goes.
type machine struct {
	ipam.Machine
	handle    string
	is        datastore.Running
	migration string // of which the pod is the target; empty: none

	known bool         // what follows was read
	had   []ipam.Lease // what it had for this interface before
}

// machineOf is the virtual machine for which a pod is attached, as its owner says and KubeVirt's API confirms; nil: none, or machines keep no
// addresses.
func (s *Server) machineOf(ctx context.Context, r wire.Request, named *datastore.Instance) (*machine, error) {
	if named == nil || r.Pod == nil || len(r.Addrs) > 0 {
		return nil, nil
	}
	pod := r.Pod.Namespace + "/" + r.Pod.Name
	config, err := ipam.ReadConfig(ctx, s.cfg.Store)
	switch {
	case err != nil:
		return nil, err
	case !config.KeepsMachineAddresses() && named.Migration != "":
		return nil, &wire.Refusal{Reason: fmt.Sprintf("pod %s is the target of a live migration of virtual machine %s/%s, and machines keep no addresses: `twill ipam configure --kubevirt-ip-persistence=Enabled`, and start it anew",
			pod, r.Pod.Namespace, named.Name)}
	case !config.KeepsMachineAddresses():
		return nil, nil
	}
	store, ok := s.cfg.Store.(datastore.Hosting)
	if !ok {
		return nil, nil
	}
	is, err := store.Instance(ctx, r.Pod.Namespace, named.Name)
	if errors.Is(err, datastore.ErrNotFound) {
		return nil, &wire.Refusal{Reason: fmt.Sprintf("pod %s says that it runs VirtualMachineInstance %s/%s, and there is none: whose addresses it may have is not known", pod, r.Pod.Namespace, named.Name)}
	}
	if err != nil {
		return nil, err
	}
	if is.UID != named.UID {
		return nil, &wire.Refusal{Reason: fmt.Sprintf("pod %s says that it runs VirtualMachineInstance %s/%s with uid %s, and that one has uid %s", pod, r.Pod.Namespace, named.Name, named.UID, is.UID)}
	}
	m := ipam.Machine{Namespace: r.Pod.Namespace, Name: named.Name}
	return &machine{Machine: m, handle: m.Handle(r.Network), is: is, migration: named.Migration}, nil
}

// take gives a pod the addresses of its machine: those that it had, and new ones of a family of which it has none. What the pod's annotations
// ask for only counts for the latter.
func (s *Server) take(ctx context.Context, r wire.Request, m *machine, want wire.IPAM) ([]netip.Addr, error) {
	about := s.aboutMachine(r, m)
	var err error
	if m.had, err = s.leasesOf(ctx, r, m); err != nil {
		return nil, err
	}
	m.known = true
	if err := s.checkUnused(ctx, r, m); err != nil {
		return nil, err
	}
	out, want, err := m.again(want)
	if err != nil {
		return nil, err
	}
	if len(out) > 0 {
		err = s.cfg.Addresses.SetOwners(ctx, m.handle, func(addr netip.Addr, o ipam.Owners) ipam.Owners {
			if slices.Contains(out, addr) {
				m.replaces(r, addr, o)
				o = ipam.Owners{Active: about}
			}
			return o
		})
		if err == nil { // each takes an address first and looks for the last owner's endpoint then, and writes its endpoint first and looks whether it was taken then
			err = s.checkUnused(ctx, r, m)
		}
	}
	if err == nil && (want.V4 || want.V6 || len(want.Addrs) > 0) {
		var more []netip.Addr
		more, err = s.assign(ctx, r, AddressRequest{Handle: m.handle, Want: want, About: about})
		out = append(out, more...)
		slices.SortFunc(out, netip.Addr.Compare) // IPv4 is less
		if err == nil {
			err = s.checkAlone(ctx, r, m, len(more))
		}
	}
	return out, err
}

// replaces notes from whom a pod takes an address: it may be another than when they were read.
func (m *machine) replaces(r wire.Request, addr netip.Addr, o ipam.Owners) {
	if isTakers(r, o.Active) {
		return // it was written, and the answer was lost
	}
	for i := range m.had {
		if m.had[i].Addr == addr {
			m.had[i].Owner, m.had[i].Alternate = o.Active, o.Alternate
		}
	}
}

// aboutMachine are the attributes of an address that a pod of a machine has.
func (s *Server) aboutMachine(r wire.Request, m *machine) map[string]string {
	out := about(s.cfg.Node, r, time.Now())
	out[api.AttributeInstance], out[api.AttributeInstanceUID], out[attributeContainer] = m.Name, m.is.UID, r.ContainerID
	if m.is.Machine != "" {
		out[api.AttributeMachineUID] = m.is.Machine
	}
	return out
}

// again are those of the addresses that it had that a pod gets again, one of each family, and what it wants beyond them.
func (m *machine) again(want wire.IPAM) ([]netip.Addr, wire.IPAM, error) {
	var has []netip.Addr
	for _, l := range m.had {
		has = append(has, l.Addr)
	}
	if len(has) == 0 {
		return nil, want, nil
	}
	if len(want.Addrs) > 0 {
		for _, addr := range want.Addrs {
			if !slices.Contains(has, addr) {
				return nil, want, &wire.Refusal{Reason: fmt.Sprintf("%s has the addresses %v, and its pod asks for %s: `twill ipam release --ip=ADDRESS` takes an address from a machine that is stopped", m, has, addr)}
			}
		}
		return want.Addrs, wire.IPAM{}, nil
	}
	slices.SortFunc(has, netip.Addr.Compare)
	var out []netip.Addr
	for _, a := range has { // of two, each of which a pod got at the same time as another, all later pods choose the same
		if wanted := map[bool]*bool{true: &want.V4, false: &want.V6}[a.Is4()]; *wanted {
			out, *wanted = append(out, a), false
		}
	}
	return out, want, nil
}

// leasesOf are the addresses that a machine has for an interface of a pod.
func (s *Server) leasesOf(ctx context.Context, r wire.Request, m *machine) ([]ipam.Lease, error) {
	all, err := s.cfg.Addresses.Leases(ctx, m.handle)
	mine := ofInterface(r.Ref)
	return slices.DeleteFunc(all, func(l ipam.Lease) bool { return !mine(l.Addr, l.Owner) }), err
}

// checkUnused refuses addresses that an endpoint of another pod of the machine has still: they would be on two nodes.
func (s *Server) checkUnused(ctx context.Context, r wire.Request, m *machine) error {
	for _, l := range m.had {
		pod, node := l.Owner[api.AttributePod], l.Owner[api.AttributeNode]
		if pod == "" || node == "" || pod == r.Pod.Name {
			continue
		}
		last := &api.WorkloadEndpoint{Spec: api.WorkloadEndpointSpec{Orchestrator: orchestratorKubernetes, Node: node, Pod: pod, Endpoint: translate.PodInterface}}
		name, err := api.WorkloadEndpointName(last.Spec)
		if err != nil {
			continue // there is none of that name
		}
		last.Object = api.Object{TypeMeta: api.TypeMeta{Kind: api.KindWorkloadEndpoint, APIVersion: api.GroupVersion}, Metadata: api.ObjectMeta{Namespace: m.Namespace, Name: name}}
		have, err := s.stored(ctx, last)
		if errors.Is(err, datastore.ErrNotFound) {
			continue
		}
		if err != nil {
			return err
		}
		if slices.Contains(have.Spec.IPNetworks, netip.PrefixFrom(l.Addr, l.Addr.BitLen()).String()) {
			return &wire.Refusal{Reason: fmt.Sprintf("%s of %s is still that of its pod %s on node %s", l.Addr, m, pod, node), Later: true}
		}
	}
	return nil
}

// checkAlone refuses new addresses if another pod of the machine got some at the same time: it would have two of a family.
func (s *Server) checkAlone(ctx context.Context, r wire.Request, m *machine, more int) error {
	now, err := s.leasesOf(ctx, r, m)
	if err == nil && len(now) > len(m.had)+more {
		err = &wire.Refusal{Reason: fmt.Sprintf("another pod of %s gets addresses at the same time", m), Later: true}
	}
	return err
}

// untake reverts take: what the machine had before is as it was, and what is new is nobody's.
func (s *Server) untake(ctx context.Context, r wire.Request, m *machine) error {
	if !m.known {
		return nil // nothing was taken
	}
	had := func(addr netip.Addr) int {
		return slices.IndexFunc(m.had, func(l ipam.Lease) bool { return l.Addr == addr })
	}
	err := s.cfg.Addresses.SetOwners(ctx, m.handle, func(addr netip.Addr, o ipam.Owners) ipam.Owners {
		if at := had(addr); at >= 0 && isTakers(r, o.Active) {
			o = ipam.Owners{Active: m.had[at].Owner, Alternate: m.had[at].Alternate}
		}
		return o
	})
	if err != nil {
		return err
	}
	for {
		now, err := s.leasesOf(ctx, r, m)
		if err != nil {
			return err
		}
		err = s.cfg.Addresses.Free(ctx, slices.DeleteFunc(now, func(l ipam.Lease) bool { return had(l.Addr) >= 0 || !isTakers(r, l.Owner) }))
		if !errors.Is(err, ipam.ErrReused) { // else another pod took one since it was read
			return err
		}
	}
}

// isTakers reports whether an owner of an address is the pod of a request, by this very request.
func isTakers(r wire.Request, owner map[string]string) bool {
	return owner[attributeContainer] == r.ContainerID && owner[attributeMAC] == r.MAC && owner[api.AttributePod] == r.Pod.Name
}

// checkTaken returns an error if another pod of the machine took the addresses of a request meanwhile, or has one of the machine's.
func (s *Server) checkTaken(ctx context.Context, r wire.Request, m *machine, addrs []netip.Addr) error {
	now, err := s.leasesOf(ctx, r, m)
	if err != nil {
		return err
	}
	for _, addr := range addrs {
		if !slices.ContainsFunc(now, func(l ipam.Lease) bool { return l.Addr == addr && isTakers(r, l.Owner) }) {
			return &wire.Refusal{Reason: fmt.Sprintf("another pod of %s took %s at the same time", m, addr), Later: true}
		}
	}
	return s.checkOnly(ctx, r, m, now)
}

// checkOnly refuses if any endpoint of another pod has an address of the machine. Whose that was before says too little: a third pod may have taken
// it, and have given it back, in between.
func (s *Server) checkOnly(ctx context.Context, r wire.Request, m *machine, has []ipam.Lease) error {
	snap, err := s.cfg.Store.List(ctx, api.KeyPrefix(api.KindWorkloadEndpoint, "")+m.Namespace+"/")
	if err != nil {
		return err
	}
	for _, u := range snap.Items {
		st, err := api.DecodeStored(u)
		if err != nil {
			continue // not written by us
		}
		w, ok := st.Resource.(*api.WorkloadEndpoint)
		if !ok || w.Spec.Pod == r.Pod.Name {
			continue
		}
		for _, l := range has {
			if slices.Contains(w.Spec.IPNetworks, netip.PrefixFrom(l.Addr, l.Addr.BitLen()).String()) {
				return &wire.Refusal{Reason: fmt.Sprintf("%s of %s is still that of its pod %s on node %s", l.Addr, m, w.Spec.Pod, w.Spec.Node), Later: true}
			}
		}
	}
	return nil
}

// leave notes with the addresses of a virtual machine that a pod has gone; they stay the machine's. Where the pod is unknown by now the note
// is that of the pod, which the next one replaces.
func (s *Server) leave(ctx context.Context, r wire.Ref) error {
	handle, mine, err := s.machinesPart(ctx, r)
	if handle == "" || err != nil {
		return err
	}
	gone := func(owner map[string]string) map[string]string {
		if !mine(netip.Addr{}, owner) {
			return owner
		}
		out := maps.Clone(owner)
		for _, name := range []string{api.AttributePod, api.AttributeNode, attributeContainer, attributeMAC, api.AttributeMigration} {
			delete(out, name)
		}
		return out
	}
	return s.cfg.Addresses.SetOwners(ctx, handle, func(_ netip.Addr, o ipam.Owners) ipam.Owners {
		return ipam.Owners{Active: gone(o.Active), Alternate: gone(o.Alternate)}
	})
}

// machinesPart returns the handle of the virtual machine whose pod an attachment is of, and what selects the attachment's owners of its addresses;
// empty: it is of none that is known.
func (s *Server) machinesPart(ctx context.Context, r wire.Ref) (handle string, mine selector, err error) {
	store, ok := s.cfg.Store.(datastore.Annotated)
	if !ok || r.Pod == nil || !strings.HasPrefix(r.Pod.Name, launcher) {
		return "", nil, nil
	}
	has, err := store.Annotations(ctx, r.Pod.Namespace, r.Pod.Name)
	if errors.Is(err, datastore.ErrNotFound) || err == nil && has.Instance == nil {
		return "", nil, nil
	}
	if err != nil {
		return "", nil, err
	}
	m := ipam.Machine{Namespace: r.Pod.Namespace, Name: has.Instance.Name}
	ofContainer := func(_ netip.Addr, owner map[string]string) bool { return owner[attributeContainer] == r.ContainerID }
	return m.Handle(r.Network), all(s.ofPod(r.Pod), ofInterface(r), ofContainer), nil
}
