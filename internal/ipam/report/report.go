// Package report is the file that a check of addresses writes, and a release of addresses reads. Its form is calicoctl's, and it also has what our check found, and why.
//
// In: a survey and its findings, or files. Out: a [Report], of which calicoctl reads what it knows; and of several, what all of them hold leaked.
// Whether that is still so is asked when it is released, not here.
//
// Source of the form: the fields that calicoctl's public source names (calicoctl/calicoctl/commands/ipam/check.go).
package report

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// Report is one.
type Report struct {
	Version         string `json:"version"` // of the program that wrote it
	ClusterGUID     string `json:"clusterGUID"`
	Locked          bool   `json:"datastoreLocked"`
	ClusterRevision string `json:"clusterInformationRevision"` // of the ClusterInformation, which a lock changes
	ClusterType     string `json:"clusterType"`

	Allocations   map[string][]Allocation `json:"allocations"` // by address
	LeakedHandles []Handle                `json:"leakedHandles,omitempty"`

	Looked   ipam.Counts `json:"looked"`
	Findings []Found     `json:"findings"` // nil: calicoctl wrote it
}

// Found is a finding, and what became of it.
type Found struct {
	ipam.Finding
	Fixed string `json:"fixed,omitempty"` // yes, or why not
}

// Allocation is an address that is allocated.
type Allocation struct {
	IP        string   `json:"ip"`
	Handle    string   `json:"handle,omitempty"`
	Sequence  *uint64  `json:"sequenceNumber,omitempty"`
	Pod       string   `json:"pod,omitempty"`
	Namespace string   `json:"namespace,omitempty"`
	Node      string   `json:"node,omitempty"`
	Type      string   `json:"type,omitempty"`
	Created   string   `json:"creationTimestamp,omitempty"`
	InUse     bool     `json:"inUse"` // false: it may be released, unless it cools down; ours say so of none that is not proven
	Borrowed  bool     `json:"borrowed,omitempty"`
	Cooling   bool     `json:"coolingDown,omitempty"`
	Owners    []string `json:"owners"` // who has it
}

// Handle is one of which no allocation is. Its fields are calicoctl's, which are in capitals.
type Handle struct {
	ID       string
	UID      *string // where Kubernetes' API is the datastore; ours say none, and calicoctl then leaves the handle alone
	Revision string
}

// Cluster is what a report says of the cluster.
type Cluster struct {
	Info     *api.ClusterInformation // nil: there is none
	Revision api.Revision
}

// ClusterOf reads what a store says of the cluster, if it says anything.
func ClusterOf(ctx context.Context, s datastore.Store) (c Cluster, err error) {
	kv, err := s.Get(ctx, api.KeyPrefix(api.KindClusterInformation, "")+"default")
	if errors.Is(err, datastore.ErrNotFound) {
		return c, nil
	}
	if err != nil {
		return c, err
	}
	st, err := api.DecodeStored(kv)
	if err != nil {
		return c, err
	}
	c.Revision = kv.Revision
	c.Info, _ = st.Resource.(*api.ClusterInformation)
	return c, nil
}

// Make writes down what a check of a survey found.
func Make(v *ipam.Survey, found []ipam.Finding, c Cluster, version string, now time.Time) Report {
	r := Report{Version: version, Allocations: map[string][]Allocation{}, Looked: v.Counts(), Findings: []Found{}}
	if c.Info != nil {
		r.ClusterGUID, r.ClusterType, r.Locked, r.ClusterRevision = c.Info.Spec.ClusterGUID, c.Info.Spec.ClusterType, c.Info.Spec.Locked(), c.Revision.String()
	}
	for _, l := range v.Records(found, now) {
		ip, sequence, owner := l.Addr.String(), l.Sequence(), l.Attr.Owner
		r.Allocations[ip] = append(r.Allocations[ip], Allocation{
			IP: ip, Handle: l.Handle, Sequence: &sequence, Node: l.Node, Borrowed: l.Borrowed, Cooling: l.Cooling, Owners: l.Owners, InUse: !l.Leaked && !l.Cooling,
			Pod: owner[api.AttributePod], Namespace: owner[api.AttributeNamespace], Type: owner[api.AttributeType], Created: owner[api.AttributeTimestamp],
		})
	}
	for _, h := range v.Handles() {
		if !h.Named {
			r.LeakedHandles = append(r.LeakedHandles, Handle{ID: h.ID, Revision: h.Revision.String()})
		}
	}
	for _, f := range found {
		r.Findings = append(r.Findings, Found{Finding: f})
	}
	return r
}

// errNone is a file that is no report.
var errNone = errors.New("it is no report of ipam check")

// Read reads a report: ours, also one of a version that wrote findings alone, or calicoctl's.
func Read(text []byte) (r Report, err error) {
	if err := json.Unmarshal(text, &r); err != nil {
		return r, fmt.Errorf("%w: %w", errNone, err)
	}
	if r.Findings == nil && r.Allocations == nil {
		return r, errNone
	}
	for ip, all := range r.Allocations {
		for _, a := range all {
			addr, err := netip.ParseAddr(a.IP)
			switch {
			case err != nil || a.IP != ip || addr.Zone() != "":
				return r, fmt.Errorf("allocations: %q at %q: want an address, and the same", a.IP, ip)
			case a.leaked() && a.Sequence == nil:
				return r, fmt.Errorf("allocations: %s has no sequenceNumber, by which it is known whether the address was given to somebody else since", ip)
			}
		}
	}
	for _, h := range r.LeakedHandles {
		if h.ID == "" || h.Revision == "" {
			return r, fmt.Errorf("leakedHandles: %q of revision %q: want both", h.ID, h.Revision)
		}
	}
	return r, nil
}

func (a Allocation) leaked() bool { return !a.InUse && !a.Cooling }

// Leaks are the allocations that a report holds leaked: of ours, what its check could fix and did not; of calicoctl's, what is not in use.
func (r Report) Leaks() (out []ipam.Release) {
	for _, f := range r.Findings {
		if f.Kind == ipam.FoundLeak && f.Fix != "" && f.Fixed != "yes" {
			out = append(out, ipam.Release{Addr: f.Address, Handle: f.Handle, Sequence: &f.Sequence})
		}
	}
	if r.Findings != nil {
		return out
	}
	for _, all := range r.Allocations {
		for _, a := range all {
			if addr, err := netip.ParseAddr(a.IP); err == nil && a.leaked() {
				out = append(out, ipam.Release{Addr: addr, Handle: a.Handle, Sequence: a.Sequence})
			}
		}
	}
	slices.SortFunc(out, func(a, b ipam.Release) int { return a.Addr.Compare(b.Addr) })
	return out
}

// Common are the allocations and the handles that all reports hold leaked, the same ones: an address that was given out anew between two of them has another
// sequence number, and a handle that was used another revision.
func Common(reports []Report) (leaks []ipam.Release, handles []Handle) {
	for i, r := range reports {
		now := map[string]bool{}
		for _, l := range r.Leaks() {
			now[key(l)] = true
		}
		of := map[Handle]bool{}
		for _, h := range r.LeakedHandles {
			h.UID = nil
			of[h] = true
		}
		if i == 0 {
			leaks, handles = r.Leaks(), slices.Clone(r.LeakedHandles)
		}
		leaks = slices.DeleteFunc(leaks, func(l ipam.Release) bool { return !now[key(l)] })
		handles = slices.DeleteFunc(handles, func(h Handle) bool { return !of[Handle{ID: h.ID, Revision: h.Revision}] })
	}
	return leaks, handles
}

func key(l ipam.Release) string { return fmt.Sprint(l.Addr, " ", *l.Sequence, " ", l.Handle) }

// Grace is how old an address must be before it is anybody's leak, unless a user says otherwise: who has a younger one may not be seen yet.
const Grace = 15 * time.Minute

// Kept is why an allocation that a report holds leaked is not to be released; empty: it may be, or is gone. Now are the records that a survey has of its address.
func Kept(l ipam.Release, now []ipam.Record) string {
	if len(now) == 0 {
		return ""
	}
	r := now[0]
	switch {
	case len(now) > 1:
		return "several blocks have it; look at ipam check"
	case r.Sequence() != *l.Sequence || l.Handle != "" && l.Handle != r.Handle:
		return "it was given out anew since the report"
	case len(r.Owners) > 0:
		return strings.Join(r.Owners, ", ") + " has it"
	case r.Dated && r.Age < Grace:
		return fmt.Sprintf("it is %s old, and who has it may not be seen yet", max(r.Age, 0).Truncate(time.Second))
	case !r.Leaked && r.OnlyKubernetesKnows() != "":
		return "only Kubernetes knows whether " + r.OnlyKubernetesKnows() + " is there"
	case !r.Leaked && r.IsTunnel():
		return r.Attr.Owner[api.AttributeType] + " is no type of which anything is known"
	}
	return ""
}

// Now are the records that a survey has of each address, for [Kept].
func Now(v *ipam.Survey) map[netip.Addr][]ipam.Record {
	now, out := time.Now(), map[netip.Addr][]ipam.Record{}
	for _, r := range v.Records(v.Check(ipam.CheckOptions{Now: now, Grace: Grace}), now) {
		out[r.Addr] = append(out[r.Addr], r)
	}
	return out
}
