// Package nodestatus writes the state of BGP on this node into CalicoNodeStatus resources.
//
// In: the resources that name this node, and its speaker's report. Out: their status, once in each period that they ask for
// ([Controller]). [Fill] makes a status of a report.
package nodestatus

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/bgp/speaker"
)

// mostRoutes of a family go into one document: etcd takes 1.5 MB, and a route is some 150 bytes.
const mostRoutes = 3000

// Facts are what a status is made of.
type Facts struct {
	Now     time.Time
	Version string
	Report  speaker.Report
	Routes  []speaker.Route
	// LinkTo returns the interface through which a next hop is reached; empty if unknown.
	LinkTo func(netip.Addr) string
}

// Fill makes a status with the given classes, with upstream's values.
func Fill(classes []string, f Facts) api.CalicoNodeStatusStatus {
	now := f.Now.UTC().Format(time.RFC3339)
	s := api.CalicoNodeStatusStatus{LastUpdated: &now}
	if slices.Contains(classes, api.ClassAgent) {
		d := daemon(f)
		s.Agent = api.NodeAgentStatus{BIRDV4: d, BIRDV6: d}
	}
	if slices.Contains(classes, api.ClassBGP) {
		s.BGP = sessions(f.Report)
	}
	if slices.Contains(classes, api.ClassRoutes) {
		s.Routes = routes(f)
	}
	return s
}

func daemon(f Facts) api.BGPDaemonStatus {
	d := api.BGPDaemonStatus{State: "Ready", Version: cmp.Or(f.Report.Version, "twill "+f.Version), LastBootTime: when(f.Report.Since), LastReconfigurationTime: when(f.Report.Planned)}
	if len(NotReady(f.Report)) > 0 {
		d.State = "NotReady"
	}
	if f.Report.RouterID.IsValid() {
		d.RouterID = f.Report.RouterID.String()
	}
	return d
}

// NotReady returns why the node is not ready for BGP; none: it is. One session that is down does not make
// a node unready while others are up.
func NotReady(r speaker.Report) (out []string) {
	up := 0
	for _, s := range r.Sessions {
		if s.State == speaker.Established {
			up++
		}
	}
	switch {
	case r.Node == "":
		return []string{"BGP: no configuration yet: the datastore has not answered, and there is no plan on disk"}
	case r.Off != "":
		return []string{"BGP: " + r.Off}
	case !r.Holding.IsZero():
		out = append(out, "BGP: restarting: not all peers have sent their routes again")
	}
	for _, why := range r.Unread {
		out = append(out, "BGP: "+why)
	}
	if up == 0 && len(r.Sessions) > 0 {
		out = append(out, "BGP: no session is up: "+r.Sessions[0].Peer.String()+": "+r.Sessions[0].Why)
	}
	return out
}

func when(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.DateTime)
}

func sessions(r speaker.Report) (b api.NodeBGPStatus) {
	for _, s := range r.Sessions {
		p := api.PeerStatus{PeerIP: s.Peer.String(), Type: peerType(s), State: s.State, Since: when(s.Since)}
		if p.State == "Closed" {
			p.State = "Close"
		}
		up, down, list := &b.NumberEstablishedV6, &b.NumberNotEstablishedV6, &b.PeersV6
		if s.Peer.Is4() {
			up, down, list = &b.NumberEstablishedV4, &b.NumberNotEstablishedV4, &b.PeersV4
		}
		*list = append(*list, p)
		if s.State == speaker.Established {
			*up++
		} else {
			*down++
		}
	}
	return b
}

func peerType(s speaker.Session) string {
	switch {
	case s.From == plan.FromMesh:
		return "NodeMesh"
	case s.Global:
		return "GlobalPeer"
	}
	return "NodePeer"
}

func routes(f Facts) (out api.NodeRoutesStatus) {
	source := map[netip.Addr]string{}
	for _, s := range f.Report.Sessions {
		if source[s.Peer] = "BGPPeer"; s.From == plan.FromMesh {
			source[s.Peer] = "NodeMesh"
		}
	}
	for _, r := range f.Routes {
		list, omitted := &out.RoutesV6, &out.OmittedV6
		if r.Dst.Addr().Is4() {
			list, omitted = &out.RoutesV4, &out.OmittedV4
		}
		if len(*list) >= mostRoutes {
			*omitted++
			continue
		}
		s := api.RouteStatus{Type: "RIB", Destination: r.Dst.String(), Gateway: "N/A", LearnedFrom: api.RouteLearnedFrom{SourceType: "Kernel"}}
		if r.Own || r.Kernel == speaker.Installed {
			s.Type = "FIB"
		}
		if !r.Own {
			s.Gateway, s.Interface = r.NextHop.String(), f.LinkTo(r.NextHop)
			s.LearnedFrom = api.RouteLearnedFrom{SourceType: source[r.From], PeerIP: r.From.String()}
		}
		*list = append(*list, s)
	}
	return out
}
