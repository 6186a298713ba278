package nodeaddr

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
)

// AnnotationDetected of a Node has the addresses that were found and written by this node itself. An address that is
// not among them is a user's choice.
const AnnotationDetected = api.AnnotationPrefix + "detected-addresses"

// Found is what was found for one family; Err says why nothing was.
type Found struct {
	Want   Want
	Choice Choice
	Err    error
}

// Change is what to write into a Node.
type Change struct {
	Family Family
	From   string
	To     netip.Prefix
	Why    string // in a line of the log
}

// Settle says what to write into a Node, which may be nil.
func Settle(n *api.Node, found []Found) (out []Change) {
	for _, f := range found {
		now := Address(n, f.Want.Family)
		to := f.Choice.Addr
		switch {
		case f.Want.Order == Keep || f.Err != nil || now == to.String():
		case f.Want.Bare && f.Choice.Interface == "" && parse(now) == to.Addr():
			// Its interface is away: the length that it had there stays.
		case f.Want.Order == Fixed:
			out = append(out, Change{f.Want.Family, now, to, "it was asked for by " + f.Want.Flag + " (" + f.Want.Env + ")"})
		case now == "", f.Want.Order == Detect, Detected(n, now):
			out = append(out, Change{f.Want.Family, now, to, fmt.Sprintf("found by %s on %s", f.Want.Method, orNowhere(f.Choice.Interface))})
		}
	}
	return out
}

func orNowhere(name string) string {
	if name == "" {
		return "no interface of this host"
	}
	return name
}

// Apply writes changes into a Node. The annotation has what was found, and no longer what has been replaced.
func Apply(n *api.Node, found []Found, changes []Change) {
	if len(changes) == 0 {
		return
	}
	if n.Spec.BGP == nil {
		n.Spec.BGP = &api.NodeBGPSpec{}
	}
	marks := strings.Fields(strings.ReplaceAll(n.Metadata.Annotations[AnnotationDetected], ",", " "))
	for _, c := range changes {
		given := c.From != "" && !slices.Contains(marks, c.From) && parse(c.From) == c.To.Addr() // by another program, in another length: it stays that
		marks = slices.DeleteFunc(marks, func(m string) bool { return m == c.From || m == c.To.String() })
		if !given && slices.ContainsFunc(found, func(f Found) bool { return f.Want.Family == c.Family && f.Want.Order != Fixed }) {
			marks = append(marks, c.To.String())
		}
		if c.Family.Four {
			n.Spec.BGP.IPv4Address = c.To.String()
		} else {
			n.Spec.BGP.IPv6Address = c.To.String()
		}
	}
	notes := maps.Clone(n.Metadata.Annotations)
	if notes == nil {
		notes = map[string]string{}
	}
	if notes[AnnotationDetected] = strings.Join(marks, ","); len(marks) == 0 {
		delete(notes, AnnotationDetected)
	}
	n.Metadata.Annotations = notes
}

// Address is what a Node says of a family, as it stands there.
func Address(n *api.Node, f Family) string {
	switch {
	case n == nil || n.Spec.BGP == nil:
		return ""
	case f.Four:
		return n.Spec.BGP.IPv4Address
	}
	return n.Spec.BGP.IPv6Address
}

// Addrs are the addresses by which other hosts reach a node, whose Node may be nil: see [api.Node.AddressOf].
func Addrs(n *api.Node) (out []netip.Addr) {
	if n == nil {
		return nil
	}
	for _, six := range []bool{false, true} {
		if a := n.AddressOf(six); a.IsValid() {
			out = append(out, a.Addr())
		}
	}
	return out
}

// Internal are the addresses of type InternalIP that a Node has, which may be nil: those that its kubelet gave to Kubernetes.
func Internal(n *api.Node) (out []netip.Addr) {
	if n == nil {
		return nil
	}
	for _, a := range n.Spec.Addresses {
		if at := parse(a.Address); a.Type == "InternalIP" && at.IsValid() {
			out = append(out, at)
		}
	}
	return out
}

// Detected reports whether a Node's address was found and written by its node itself.
func Detected(n *api.Node, address string) bool {
	return n != nil && address != "" && slices.Contains(strings.Split(n.Metadata.Annotations[AnnotationDetected], ","), address)
}
