package conformance

import (
	"context"
	"errors"
	"fmt"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/dataplane/remote"
)

// cases are all, in the order of the points of docs/remote-dataplane.md.
var cases = []aCase{
	{"greeting", "Hello is answered with Welcome, version 1 and a name", onStream(func(*stream) error { return nil })},
	{"version", "a version that the driver does not speak is not welcomed", version},
	{"no-greeting", "a stream that does not begin with Hello commits nothing", noGreeting},
	{"kinds", "each kind of item is brought into force", onStream(func(t *stream) error { return t.accepted(allKinds()...) })},
	{"empty", "a commit without items is answered", onStream(func(t *stream) error { return errors.Join(t.accepted(), t.accepted()) })},
	{"one-answer", "each commit is answered once, with its sequence, and items are not", onStream(oneAnswer)},
	{"changes", "members, rules and endpoints change, and go in the agent's order", onStream(changes)},
	{"large", "many items before a commit are taken", onStream(large)},
	{"sequence", "a message that is missing is noticed", onStream(gap)},
	{"reconnect", "each stream counts from 1, and begins with all items", reconnect},
	{"first-commit", "the first commit of a stream removes what it does not name", onTwo(true)},
	{"cut", "items before a commit have no effect if the stream is cut", onTwo(false)},
	{"replace", "a new stream takes the place of the one before it", replace},
	{"removed", "what is removed is gone", onStream(gone)},
	{"order", "an item that names another that is not there is not called in force", order},
	{"nonsense", "an item that means nothing is not called in force", nonsense},
}

// onStream is a case of one stream.
func onStream(run func(*stream) error) func(context.Context, *suite) error {
	return func(ctx context.Context, s *suite) error {
		t, err := s.begin(ctx)
		if err != nil {
			return err
		}
		defer t.cut()
		return run(t)
	}
}

// version: the stream ends, or the driver says which version it speaks, so that the agent ends it.
func version(ctx context.Context, s *suite) error {
	t, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer t.cut()
	const other = remote.Version + 1
	if err := t.send(hello(other)); err != nil {
		return err
	}
	m, err := t.receive()
	if errors.As(err, new(ended)) || err == nil && m.GetWelcome().GetVersion() == remote.Version {
		return nil
	}
	if err != nil {
		return err
	}
	return fmt.Errorf("it answers version %d with %v", other, m)
}

func noGreeting(ctx context.Context, s *suite) error {
	t, err := s.dial(ctx)
	if err != nil {
		return err
	}
	defer t.cut()
	return t.refused("a commit before Hello", policy("p"))
}

func allKinds() []*pb.ToDriver {
	return []*pb.ToDriver{
		set("s", "192.0.2.0/28", "2001:db8::/64"),
		{Item: &pb.ToDriver_IpSet{IpSet: &pb.IPSet{Id: "ports", Kind: pb.IPSet_PORTS, Members: []*pb.Member{{Prefix: "192.0.2.10/32", Protocol: 6, Port: 80}}}}},
		change("s", members("198.51.100.0/24"), nil),
		policy("p", "s"),
		rules("q", &pb.Rule{Action: pb.Action_ALLOW, Protocol: 6, Destination: &pb.Peer{PortSets: []string{"ports"}}}, &pb.Rule{Action: pb.Action_DENY, Family: 6}),
		endpoint("p", "q"),
		route("198.51.100.0/26", pb.Route_BLACKHOLE),
		{Item: &pb.ToDriver_TunnelPeer{TunnelPeer: &pb.TunnelPeer{Node: "other", Kind: pb.TunnelKind_IPIP, Host: "203.0.113.2", Address: "198.51.100.65"}}},
		{Item: &pb.ToDriver_Host{Host: &pb.HostSettings{NoForwarding: true}}},
	}
}

// oneAnswer sends the next commit at once after an answer: an answer too many is then in the place of its answer.
func oneAnswer(t *stream) error {
	for i := range 5 {
		if err := t.accepted(policy(fmt.Sprint("p", i)), policy(fmt.Sprint("q", i))); err != nil {
			return err
		}
	}
	return t.accepted()
}

func changes(t *stream) error {
	for _, step := range [][]*pb.ToDriver{
		{set("s", "192.0.2.1/32"), policy("p", "s"), endpoint("p")},
		{change("s", members("192.0.2.2/32"), members("192.0.2.1/32"))},
		{set("new"), policy("p", "new"), setGoes("s")},
		{policy("q"), endpoint("q"), policyGoes("p"), setGoes("new")},
		{endpointGoes(), policyGoes("q")},
	} {
		if err := t.accepted(step...); err != nil {
			return err
		}
	}
	return nil
}

// large sends all before it reads anything.
func large(t *stream) error {
	items := []*pb.ToDriver{set("s")}
	for i := range 10 {
		var more []*pb.Member
		for j := range 2000 {
			more = append(more, &pb.Member{Prefix: fmt.Sprintf("10.%d.%d.%d/32", i, j/250, j%250)})
		}
		items = append(items, change("s", more, nil))
	}
	for i := range 500 {
		items = append(items, policy(fmt.Sprint("p", i), "s"))
	}
	return t.accepted(items...)
}

func gap(t *stream) error {
	if err := t.accepted(); err != nil {
		return err
	}
	t.sequence++ // as if one was lost
	return t.refused("a commit of which a message is missing", policy("p"))
}

func reconnect(ctx context.Context, s *suite) error {
	for range 5 {
		if err := onStream(func(t *stream) error { return errors.Join(t.accepted(allKinds()...), t.accepted()) })(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// onTwo sends a policy on one stream, which it cuts, and what names the policy on the next: there must be no such policy.
func onTwo(committed bool) func(context.Context, *suite) error {
	return func(ctx context.Context, s *suite) error {
		err := onStream(func(t *stream) error {
			if committed {
				return t.accepted(policy("former"))
			}
			return errors.Join(t.accepted(), t.send(policy("former")), t.finish())
		})(ctx, s)
		if err != nil {
			return err
		}
		return onStream(func(t *stream) error {
			if err := t.accepted(); err != nil {
				return err
			}
			return t.refused("an endpoint with a policy of the stream before", endpoint("former"))
		})(ctx, s)
	}
}

func replace(ctx context.Context, s *suite) error {
	former, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer former.cut()
	if err := former.accepted(policy("p")); err != nil {
		return err
	}
	if err := onStream(func(t *stream) error { return t.accepted() })(ctx, s); err != nil {
		return fmt.Errorf("a second stream: %w", err)
	}
	return former.refused("a commit on the former stream", policy("q"))
}

func gone(t *stream) error {
	if err := t.accepted(policy("p")); err != nil {
		return err
	}
	if err := t.accepted(policyGoes("p")); err != nil {
		return err
	}
	return t.refused("an endpoint with a policy that was removed", endpoint("p"))
}

// refusals tries each of a list a stream of its own, after what is right.
func refusals(ctx context.Context, s *suite, list []refusal) error {
	for _, r := range list {
		err := onStream(func(t *stream) error {
			if err := t.accepted(r.first...); err != nil {
				return err
			}
			return t.refused(r.what, r.then...)
		})(ctx, s)
		if err != nil {
			return err
		}
	}
	return nil
}

// refusal is what a driver must not call in force.
type refusal struct {
	what        string
	first, then []*pb.ToDriver
}

func order(ctx context.Context, s *suite) error {
	return refusals(ctx, s, []refusal{
		{"a policy with a set that is not there", nil, []*pb.ToDriver{policy("p", "absent")}},
		{"an endpoint with a policy that is not there", nil, []*pb.ToDriver{endpoint("absent")}},
		{"members of a set that is not there", nil, []*pb.ToDriver{change("absent", members("192.0.2.1/32"), nil)}},
		{"a set that goes while a policy names it", []*pb.ToDriver{set("s"), policy("p", "s")}, []*pb.ToDriver{setGoes("s")}},
		{"a policy that goes while an endpoint names it", []*pb.ToDriver{policy("p"), endpoint("p")}, []*pb.ToDriver{policyGoes("p")}},
	})
}

func nonsense(ctx context.Context, s *suite) error {
	var list []refusal
	for what, item := range map[string]*pb.ToDriver{
		"an item without content":    {},
		"a removal of nothing":       removed(&pb.Key{}),
		"a set of kind 9":            {Item: &pb.ToDriver_IpSet{IpSet: &pb.IPSet{Id: "s", Kind: 9}}},
		"a member 10.0.0.0/33":       set("s", "10.0.0.0/33"),
		"a rule with action 9":       rules("p", &pb.Rule{Action: 9}),
		"a rule with family 5":       rules("p", &pb.Rule{Family: 5}),
		"a rule with protocol 256":   rules("p", &pb.Rule{Protocol: 256}),
		"a rule with port 65536":     rules("p", &pb.Rule{Protocol: 6, Destination: &pb.Peer{Ports: []*pb.PortRange{{Min: 65536, Max: 65536}}}}),
		"a route of kind 9":          route("198.51.100.0/26", 9),
		"a route to nowhere":         route("", pb.Route_BLACKHOLE),
		"a tunnel peer of kind 9":    {Item: &pb.ToDriver_TunnelPeer{TunnelPeer: &pb.TunnelPeer{Node: "other", Kind: 9}}},
		"settings with to-host of 9": {Item: &pb.ToDriver_Host{Host: &pb.HostSettings{EndpointToHost: 9}}},
	} {
		list = append(list, refusal{what, nil, []*pb.ToDriver{item}})
	}
	return refusals(ctx, s, list)
}
