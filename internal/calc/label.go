package calc

import (
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
)

// item is what selectors of rules can select: addresses under labels.
type item struct {
	labels  map[string]string // its own
	parents []string          // profiles whose labels it inherits; the earlier beats the later
	addrs   []netip.Prefix
	ports   []namedPort
}

type namedPort struct {
	name  string
	proto uint8
	port  uint16
}

// vector is all items with the same own labels and the same parents.
type vector struct {
	id      string
	own     map[string]string
	parents []string
	items   map[string]*placed
	in      map[*selection]bool // the selections that select it
}

// placed is an item in its vector.
type placed struct {
	vec   *vector
	addrs []netip.Prefix
	ports []namedPort
}

// Get makes a vector's labels readable together with its profiles'. See selector.Labels.
type labelView struct {
	vec    *vector
	parent map[string]map[string]string
}

func (v labelView) Get(name string) (string, bool) {
	if s, ok := v.vec.own[name]; ok {
		return s, true
	}
	for _, p := range v.vec.parents {
		if s, ok := v.parent[p][name]; ok {
			return s, true
		}
	}
	return "", false
}

// labelIndex knows all items by their vectors.
type labelIndex struct {
	sets     *setIndex
	items    map[string]*placed // by datastore key
	vectors  map[string]*vector
	parent   map[string]map[string]string // labels of profiles, by name
	byParent map[string]map[*vector]bool
}

func newLabelIndex(sets *setIndex) labelIndex {
	x := labelIndex{sets: sets, items: map[string]*placed{}, vectors: map[string]*vector{},
		parent: map[string]map[string]string{}, byParent: map[string]map[*vector]bool{}}
	return x
}

func (x *labelIndex) put(key string, it item) {
	vec := x.vector(it)
	was := x.items[key]
	now := &placed{vec, it.addrs, it.ports}
	if was != nil && was.vec == vec && slices.Equal(was.addrs, now.addrs) && slices.Equal(was.ports, now.ports) {
		return
	}
	// New before old, so that a member which stays is not gone in between.
	x.items[key] = now
	vec.items[key] = now
	for s := range vec.in {
		s.add(now)
	}
	if was != nil {
		for s := range was.vec.in {
			s.drop(was)
		}
		if was.vec != vec {
			x.leave(was.vec, key)
		}
	}
}

func (x *labelIndex) remove(key string) {
	was := x.items[key]
	if was == nil {
		return
	}
	delete(x.items, key)
	for s := range was.vec.in {
		s.drop(was)
	}
	x.leave(was.vec, key)
}

// leave takes an item out of a vector, and forgets a vector without items.
func (x *labelIndex) leave(v *vector, key string) {
	delete(v.items, key)
	if len(v.items) > 0 {
		return
	}
	delete(x.vectors, v.id)
	for s := range v.in {
		delete(s.vectors, v)
	}
	for _, p := range v.parents {
		delete(x.byParent[p], v)
		if len(x.byParent[p]) == 0 {
			delete(x.byParent, p)
		}
	}
}

// vector returns that of an item; a new one is asked about by all selections.
func (x *labelIndex) vector(it item) *vector {
	var b strings.Builder
	for _, k := range slices.Sorted(maps.Keys(it.labels)) {
		b.WriteString(strconv.Quote(k))
		b.WriteString(strconv.Quote(it.labels[k]))
	}
	for _, p := range it.parents {
		b.WriteByte(' ')
		b.WriteString(strconv.Quote(p))
	}
	id := b.String()
	if v := x.vectors[id]; v != nil {
		return v
	}
	v := &vector{id: id, own: it.labels, parents: it.parents, items: map[string]*placed{}, in: map[*selection]bool{}}
	x.vectors[id] = v
	for _, p := range v.parents {
		if x.byParent[p] == nil {
			x.byParent[p] = map[*vector]bool{}
		}
		x.byParent[p][v] = true
	}
	for _, s := range x.sets.selections {
		if s.sel.MatchLabels(x.view(v)) {
			v.in[s] = true
			s.vectors[v] = true
		}
	}
	return v
}

func (x *labelIndex) view(v *vector) labelView { return labelView{v, x.parent} }

// setParent changes what a profile's items inherit.
func (x *labelIndex) setParent(name string, labels map[string]string) {
	if maps.Equal(x.parent[name], labels) {
		return
	}
	if labels == nil {
		delete(x.parent, name)
	} else {
		x.parent[name] = labels
	}
	for v := range x.byParent[name] {
		for _, s := range x.sets.selections {
			x.judge(s, v)
		}
	}
}

// judge asks a selection about a vector again.
func (x *labelIndex) judge(s *selection, v *vector) {
	is := s.sel.MatchLabels(x.view(v))
	if is == v.in[s] {
		return
	}
	if is {
		v.in[s], s.vectors[v] = true, true
	} else {
		delete(v.in, s)
		delete(s.vectors, v)
	}
	for _, it := range v.items {
		if is {
			s.add(it)
		} else {
			s.drop(it)
		}
	}
}

// activate fills a new selection.
func (x *labelIndex) activate(s *selection) {
	for _, v := range x.vectors {
		x.judge(s, v)
	}
}

// deactivate lets a selection go.
func (x *labelIndex) deactivate(s *selection) {
	for v := range s.vectors {
		delete(v.in, s)
	}
}

// labelsOf gives an endpoint or set the labels that only its place can give it.
func labelsOf(own map[string]string, namespace, account string) map[string]string {
	out := make(map[string]string, len(own)+2)
	maps.Copy(out, own)
	for k, v := range map[string]string{api.LabelNamespace: namespace, api.LabelServiceAccount: account} {
		if v == "" {
			delete(out, k)
		} else {
			out[k] = v
		}
	}
	return out
}

func workloadItem(w *api.WorkloadEndpoint) item {
	it := item{labels: labelsOf(w.Metadata.Labels, w.Metadata.Namespace, w.Spec.ServiceAccountName), parents: slices.Clone(w.Spec.Profiles), addrs: prefixes(w.Spec.IPNetworks)}
	for _, p := range w.Spec.Ports {
		if n, ok := p.Protocol.Number(); ok && p.Name != "" {
			it.ports = append(it.ports, namedPort{p.Name, n, p.Port})
		}
	}
	return it
}

func hostItem(h *api.HostEndpoint) item {
	it := item{labels: maps.Clone(h.Metadata.Labels), parents: slices.Clone(h.Spec.Profiles), addrs: prefixes(h.Spec.ExpectedIPs)}
	for _, p := range h.Spec.Ports {
		if n, ok := p.Protocol.Number(); ok && p.Name != "" {
			it.ports = append(it.ports, namedPort{p.Name, n, p.Port})
		}
	}
	return it
}

func setItem(m api.ObjectMeta, nets []string) item {
	if m.Namespace == "" {
		return item{labels: maps.Clone(m.Labels), addrs: prefixes(nets)}
	}
	return item{labels: labelsOf(m.Labels, m.Namespace, m.Labels[api.LabelServiceAccount]), parents: []string{"kns." + m.Namespace}, addrs: prefixes(nets)}
}

// prefixes reads nets, masked; what cannot be read has been reported by the decoder.
func prefixes(texts []string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		if p, err := netip.ParsePrefix(t); err == nil {
			out = append(out, p.Masked())
		} else if a, err := netip.ParseAddr(t); err == nil {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// members of a set that an item contributes.
func (it *placed) members(port *portName, yield func(intent.Member)) {
	if port == nil {
		for _, a := range it.addrs {
			yield(intent.Member{Prefix: a})
		}
		return
	}
	for _, p := range it.ports {
		if p.name != port.name || p.proto != port.proto {
			continue
		}
		for _, a := range it.addrs {
			if a.IsSingleIP() {
				yield(intent.Member{Prefix: a, Proto: p.proto, Port: p.port})
			}
		}
	}
}
