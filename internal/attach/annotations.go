package attach

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/translate"
)

// Annotations by which a pod asks a CNI plugin for something, as upstream has them; of the first three, those of its namespace are the
// pod's where it has none.
const (
	annotationDomain      = "cni.projectcalico.org/"
	annotationPools4      = annotationDomain + "ipv4pools"
	annotationPools6      = annotationDomain + "ipv6pools"
	annotationFamilies    = annotationDomain + "ipFamilies"
	annotationAddrs       = annotationDomain + "ipAddrs"
	annotationAddrsNoIPAM = annotationDomain + "ipAddrsNoIpam"
	annotationMAC         = annotationDomain + "hwAddr"
	qosDomain             = "qos.projectcalico.org/"
)

// known are all annotations of a domain of the plugin's that mean something here: on a pod, and on a namespace.
var (
	knownOfNamespace = []string{annotationPools4, annotationPools6, annotationFamilies}
	knownOfPod       = append([]string{
		annotationAddrs, annotationAddrsNoIPAM, annotationMAC, translate.AnnotationFloating, translate.AnnotationSourcePrefixes,
		translate.AnnotationContainer, translate.AnnotationIP, translate.AnnotationIPs,
	}, knownOfNamespace...)
)

// wanted is what a pod is to get: what the network's configuration says, and what annotations say otherwise.
type wanted struct {
	ipam    wire.IPAM
	addrs   []netip.Addr // these, which are assigned already, or nobody's to assign
	mac     string       // empty: the one that the plugin generated
	because string       // the annotations that decide which addresses; empty: none
	idle    []string     // annotations without effect, and why

	machine *machine // whose addresses it gets; nil: its own

	reported bool // the pod says that a failure to attach it was reported
}

const mostIdle = 20 // are named in the log

// annotated reads what the annotations of a request's pod, and of its namespace, ask for; with a store that has none, nothing.
func (s *Server) annotated(ctx context.Context, r wire.Request) (wanted, error) {
	store, ok := s.cfg.Store.(datastore.Annotated)
	if r.Pod == nil || !ok {
		return wanted{ipam: r.IPAM, addrs: r.Addrs}, nil
	}
	has, err := store.Annotations(ctx, r.Pod.Namespace, r.Pod.Name)
	if errors.Is(err, datastore.ErrNotFound) {
		return wanted{}, &wire.Refusal{Reason: fmt.Sprintf("pod %s/%s is not in the datastore: %v", r.Pod.Namespace, r.Pod.Name, err)}
	}
	if err != nil {
		return wanted{}, err
	}
	w, err := wantedOf(r, has)
	if err == nil && len(r.Addrs) == 0 {
		err = s.checkUnassigned(ctx, w)
	}
	if err == nil {
		w.machine, err = s.machineOf(ctx, r, has.Instance)
	}
	if n := len(w.idle) - mostIdle; n > 0 {
		w.idle = append(w.idle[:mostIdle:mostIdle], fmt.Sprintf("and %d more", n))
	}
	if err == nil && len(w.idle) > 0 {
		s.cfg.Log.Warn("annotations without effect", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "annotations", w.idle)
	}
	return w, err
}

// checkUnassigned refuses addresses that a pod takes by itself if they are assigned to another.
func (s *Server) checkUnassigned(ctx context.Context, w wanted) error {
	for _, addr := range w.addrs {
		has, err := s.cfg.Addresses.QueryIP(ctx, addr)
		switch {
		case err != nil:
			return err
		case has.Assigned:
			return &wire.Refusal{Reason: w.explain(fmt.Errorf("%s: %w", addr, &ipam.AssignedError{Addr: addr, Handle: has.Handle})).Error()}
		case has.Pool != "" && !has.Reserved:
			s.cfg.Log.Warn("an address is used without address management, and its pool may give it to another: reserve it (IPReservation)", "address", addr, "pool", has.Pool)
		}
	}
	return nil
}

// wantedOf puts together what the request of a pod and annotations ask for. Whatever cannot be honoured as it is written is a refusal.
func wantedOf(r wire.Request, has datastore.Annotations) (wanted, error) {
	a := &annotations{request: r, has: has, wanted: wanted{ipam: r.IPAM, addrs: r.Addrs, reported: has.Pod[translate.AnnotationSetupFailed] != ""}}
	for _, read := range []func() error{a.families, a.pools4, a.pools6, a.addresses, a.mac, a.sourcePrefixes, a.floating, a.limits} {
		if err := read(); err != nil {
			return wanted{}, err
		}
	}
	a.unknown(has.Pod, knownOfPod, "of the pod is not known", annotationDomain, qosDomain)
	a.unknown(has.Namespace, knownOfNamespace, "means nothing on a namespace", annotationDomain)
	return a.wanted, nil
}

// annotations are those of one pod, while they are read.
type annotations struct {
	request wire.Request
	has     datastore.Annotations
	wanted  wanted
}

// delegated reports whether another plugin assigned the addresses, so that no pool of ours matters.
func (a *annotations) delegated() bool { return len(a.request.Addrs) > 0 }

// source names an annotation and its owner.
func (a *annotations) source(name string) string {
	if a.has.Pod[name] != "" {
		return fmt.Sprintf("annotation %s of pod %s/%s", name, a.request.Pod.Namespace, a.request.Pod.Name)
	}
	return fmt.Sprintf("annotation %s of namespace %s", name, a.request.Pod.Namespace)
}

func (a *annotations) refuse(name, format string, args ...any) error {
	return &wire.Refusal{Reason: a.source(name) + " " + fmt.Sprintf(format, args...)}
}

// inherited is the list in an annotation of the pod, or else of its namespace; nil: neither asks for anything that has an effect.
func (a *annotations) inherited(name string) ([]string, error) {
	text := a.has.Pod[name]
	if text == "" {
		text = a.has.Namespace[name]
	}
	switch {
	case text == "":
		return nil, nil
	case a.delegated():
		a.ignore(name, "another plugin gives the addresses (ipam.type)")
		return nil, nil
	}
	list, err := translate.ListOf(text)
	if err != nil {
		return nil, a.refuse(name, "%v", err)
	}
	return list, nil
}

func (a *annotations) ignore(name, why string) {
	a.wanted.idle = append(a.wanted.idle, a.source(name)+": "+why)
}

func (a *annotations) decidedBy(name string) {
	if a.wanted.because != "" {
		a.wanted.because += ", "
	}
	a.wanted.because += a.source(name)
}

func (a *annotations) families() error {
	list, err := a.inherited(annotationFamilies)
	if list == nil || err != nil {
		return err
	}
	a.wanted.ipam.V4, a.wanted.ipam.V6 = slices.Contains(list, "IPv4"), slices.Contains(list, "IPv6")
	for _, family := range list {
		if family != "IPv4" && family != "IPv6" {
			return a.refuse(annotationFamilies, `has %.100q: want "IPv4" or "IPv6"`, family)
		}
	}
	a.decidedBy(annotationFamilies)
	return nil
}

func (a *annotations) pools4() error {
	return a.pools(annotationPools4, "IPv4", a.wanted.ipam.V4, &a.wanted.ipam.Pools4)
}

func (a *annotations) pools6() error {
	return a.pools(annotationPools6, "IPv6", a.wanted.ipam.V6, &a.wanted.ipam.Pools6)
}

func (a *annotations) pools(name, family string, on bool, into *[]string) error {
	list, err := a.inherited(name)
	switch {
	case list == nil || err != nil:
		return err
	case !on && a.has.Pod[name] == "":
		a.ignore(name, "the pod gets no "+family+" address")
		return nil
	case !on:
		return a.refuse(name, "asks for %s, which is off: turn it on by %s, or by assign_%s in the network's configuration", family, annotationFamilies, strings.ToLower(family))
	}
	for _, pool := range list {
		if p, err := netip.ParsePrefix(pool); err != nil && (pool == "" || strings.Contains(pool, "/")) || err == nil && p.Addr().Is4() != (family == "IPv4") {
			return a.refuse(name, "has %.100q: want the name or the prefix of an %s pool", pool, family)
		}
	}
	*into = list
	a.decidedBy(name)
	return nil
}

// addresses reads which addresses the pod names itself.
func (a *annotations) addresses() error {
	name := annotationAddrs
	switch byIPAM, other := a.has.Pod[annotationAddrs] != "", a.has.Pod[annotationAddrsNoIPAM] != ""; {
	case !byIPAM && !other:
		return nil
	case byIPAM && other:
		return a.refuse(annotationAddrs, "and %s exclude each other: remove one", annotationAddrsNoIPAM)
	case other:
		name = annotationAddrsNoIPAM
	}
	if a.delegated() {
		return a.refuse(name, "cannot be honoured: another plugin gives the addresses here (ipam.type)")
	}
	addrs, err := a.addrs(name)
	if err != nil {
		return err
	}
	switch fixed := a.request.IPAM.Addrs; {
	case len(fixed) > 0 && !slices.Equal(fixed, addrs):
		return a.refuse(name, "asks for %v, and the runtime (IP in CNI_ARGS, or args.cni.ips) for %v", addrs, fixed)
	case name == annotationAddrs:
		a.wanted.ipam.Addrs = addrs
	case !a.request.AllowNoIPAM:
		return a.refuse(name, "is not allowed: the network's configuration has no feature_control.ip_addrs_no_ipam")
	default:
		a.wanted.addrs = addrs
	}
	a.wanted.because = a.source(name)
	return nil
}

// addrs reads a list of addresses, at most one of each family, that a container can have.
func (a *annotations) addrs(name string) ([]netip.Addr, error) {
	list, err := translate.ListOf(a.has.Pod[name])
	if err != nil {
		return nil, a.refuse(name, "%v", err)
	}
	var out []netip.Addr
	for _, text := range list {
		addr, err := netip.ParseAddr(text)
		addr = addr.Unmap()
		family, on := "IPv6", a.wanted.ipam.V6
		if addr.Is4() {
			family, on = "IPv4", a.wanted.ipam.V4
		}
		switch {
		case err != nil || addr.Zone() != "" || !addr.IsGlobalUnicast():
			return nil, a.refuse(name, "has %.100q: want an address that a pod can have, such as 192.0.2.7 or 2001:db8::7", text)
		case slices.ContainsFunc(out, func(o netip.Addr) bool { return o.Is4() == addr.Is4() }):
			return nil, a.refuse(name, "has two addresses of %s: at most one is possible", family)
		case !on:
			return nil, a.refuse(name, "asks for %s, but %s is off: turn it on by %s, or by assign_%s in the network's configuration", addr, family, annotationFamilies, strings.ToLower(family))
		}
		out = append(out, addr)
	}
	return out, nil
}

func (a *annotations) mac() error {
	text := a.has.Pod[annotationMAC]
	if text == "" {
		return nil
	}
	hw, err := net.ParseMAC(text)
	switch {
	case err != nil || len(hw) != 6 || slices.Equal(hw, make(net.HardwareAddr, 6)):
		return a.refuse(annotationMAC, "is %.100q: want six bytes such as 1c:0c:0a:c0:ff:ee", text)
	case hw[0]&1 != 0:
		return a.refuse(annotationMAC, "is %q, which is a group's address: the first byte must be even", text)
	}
	a.wanted.mac = hw.String()
	return nil
}

// sourcePrefixes are checked here; the store's endpoint has them.
func (a *annotations) sourcePrefixes() error {
	if _, err := translate.SourcePrefixes(a.has.Pod[translate.AnnotationSourcePrefixes]); err != nil {
		return a.refuse(translate.AnnotationSourcePrefixes, "%v", err)
	}
	return nil
}

// floating are checked here, too; who has them is for all nodes to say.
func (a *annotations) floating() error {
	all, err := translate.FloatingIPs(a.has.Pod[translate.AnnotationFloating])
	if err != nil {
		return a.refuse(translate.AnnotationFloating, "%v", err)
	}
	for _, addr := range all {
		if !a.delegated() && (addr.Is4() && !a.wanted.ipam.V4 || addr.Is6() && !a.wanted.ipam.V6) {
			return a.refuse(translate.AnnotationFloating, "has %s, and the pod gets no address of that family", addr)
		}
	}
	return nil
}

// limits are checked here, too; the store's endpoint has them.
func (a *annotations) limits() error {
	if _, wrong := translate.Limits(a.has.Pod); len(wrong) > 0 {
		return a.refuse(wrong[0].Annotation, "%s", wrong[0].Reason)
	}
	return nil
}

// unknown notes annotations of some domains that are none of those that mean something.
func (a *annotations) unknown(has map[string]string, known []string, why string, domains ...string) {
	for _, name := range slices.Sorted(maps.Keys(has)) {
		ours := slices.ContainsFunc(domains, func(d string) bool { return strings.HasPrefix(name, d) })
		if ours && !slices.Contains(known, name) && !translate.IsLimit(name) {
			a.wanted.idle = append(a.wanted.idle, fmt.Sprintf("annotation %.100s %s", name, why))
		}
	}
}

// explain says of an error about addresses which annotations asked for them, and what helps.
func (w wanted) explain(err error) error {
	if w.because == "" {
		return err
	}
	help := ""
	switch {
	case errors.Is(err, ipam.ErrAssigned):
		help = "; `twill ipam show --ip ADDRESS` says whose it is: ask for another, or give that one back"
	case errors.Is(err, ipam.ErrNoPool), errors.Is(err, ipam.ErrUnknownPool):
		help = "; `twill get ippools -o wide` lists the pools: name one of them, or apply an IPPool"
	}
	return fmt.Errorf("%s: %w%s", w.because, err, help)
}
