package felixbackend

import (
	"cmp"
	"encoding/base64"
	"fmt"

	pb "github.com/twillnet/twill/api/felixpb"
	"github.com/twillnet/twill/internal/intent"
)

// longestWord is the most bytes of what a driver says of an endpoint's state that are kept.
const longestWord = 100

// read takes a message of the program, and returns the outcome that changed, if one did. What means nothing is logged, once of each kind, and has no effect.
func (d *Driver) read(m *pb.FromDataplane) []intent.Outcome {
	switch x := m.GetPayload().(type) {
	case *pb.FromDataplane_WorkloadEndpointStatusUpdate:
		return d.status(workloadWire(x.WorkloadEndpointStatusUpdate.GetId()), x.WorkloadEndpointStatusUpdate.GetStatus().GetStatus())
	case *pb.FromDataplane_HostEndpointStatusUpdate:
		return d.status(wireID{host: x.HostEndpointStatusUpdate.GetId().GetEndpointId()}, x.HostEndpointStatusUpdate.GetStatus().GetStatus())
	case *pb.FromDataplane_WorkloadEndpointStatusRemove:
		return d.unsaid(workloadWire(x.WorkloadEndpointStatusRemove.GetId()))
	case *pb.FromDataplane_HostEndpointStatusRemove:
		return d.unsaid(wireID{host: x.HostEndpointStatusRemove.GetId().GetEndpointId()})
	case *pb.FromDataplane_WireguardStatusUpdate:
		d.key(x.WireguardStatusUpdate)
	case *pb.FromDataplane_DataplaneInSync:
		clear(d.first)
	case *pb.FromDataplane_ProcessStatusUpdate: // a heartbeat: that the program runs, the kernel says
	default:
		d.odd("a message of no kind that is known")
	}
	return nil
}

// odd logs what means nothing, once for each program.
func (d *Driver) odd(what string, args ...any) {
	if !d.logged[what] {
		d.logged[what] = true
		d.cfg.Log.Warn("a dataplane driver sent "+what+"; more of that is not logged", append([]any{"driver", d.program.name}, args...)...)
	}
}

// status takes what the program says of an endpoint. It holds until the program says something else, or ends.
func (d *Driver) status(wire wireID, word string) []intent.Outcome {
	id, is := d.to.ids[wire]
	switch {
	case !is || !d.state.Has(id):
		d.odd("the state of an endpoint that it was not sent", "endpoint", fmt.Sprintf("%.100s", fmt.Sprint(wire)))
		return nil
	case word == "":
		d.odd("an empty state of an endpoint", "endpoint", id.String())
		return nil
	}
	if len(word) > longestWord {
		word = word[:longestWord]
	}
	delete(d.first, id)
	if d.words[id] == word {
		return nil
	}
	d.words[id] = word
	if d.state.Waits(id) {
		return nil // it is to be sent; then the outcome follows
	}
	return []intent.Outcome{d.noted(outcome(id, word))}
}

// unsaid is for an endpoint of which the program says nothing any more.
func (d *Driver) unsaid(wire wireID) []intent.Outcome {
	id, is := d.to.ids[wire]
	if !is || !d.state.Has(id) || d.words[id] == "" {
		return nil // it is gone here, too
	}
	delete(d.words, id)
	return []intent.Outcome{d.noted(outcome(id, ""))}
}

// key takes the public key of this host's end of WireGuard.
func (d *Driver) key(w *pb.WireguardStatusUpdate) {
	kind, family := intent.WireGuard, 0
	if w.GetIpVersion() == pb.IPVersion_IPV6 {
		kind, family = intent.WireGuard6, 1
	}
	public := w.GetPublicKey()
	if raw, err := base64.StdEncoding.DecodeString(public); public != "" && (err != nil || len(raw) != 32) {
		d.odd("a public key of WireGuard that is none: want 32 bytes in base64")
		return
	}
	if d.to.keys[family] == public {
		return
	}
	d.to.keys[family], d.to.all = public, true
	if d.cfg.Keys != nil {
		d.cfg.Keys(kind, public)
	}
}

// outcome is what a driver's word for the state of an endpoint means.
func outcome(id intent.EndpointID, word string) intent.Outcome {
	switch word {
	case "up":
		return intent.Outcome{Key: id}
	case "down":
		return intent.Outcome{Key: id, Reason: "the dataplane driver says that it is down"}
	case "":
		return intent.Outcome{Key: id, Err: silent{}}
	}
	return intent.Outcome{Key: id, Err: fmt.Errorf("the dataplane driver says %q of it", cmp.Or(word, "nothing"))}
}
