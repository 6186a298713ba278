// Package plugin is the reference plugin of the Endpoint API: it answers from a list, and says what the agent tells it.
//
// In: a list of endpoints, each with the interface that it is for, which may change at any time. Out: answers to the agent, and
// its events. It is for trying, for tests, and to begin a plugin with.
package plugin

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/proto"

	"github.com/twillnet/twill/api/endpointpb"
)

// List is what a plugin knows.
type List struct {
	Endpoints []Entry `json:"endpoints"`
	Groups    *Groups `json:"groups,omitempty"` // absent: it announces none, and what it has announced before stays
}

// Entry is an endpoint, and which interface it is for.
type Entry struct {
	Match          Match             `json:"match"`
	Namespace      string            `json:"namespace,omitempty"`
	Workload       string            `json:"workload"`
	Endpoint       string            `json:"endpoint"`
	MAC            string            `json:"mac,omitempty"`
	Addresses      []string          `json:"addresses"`
	Gateway4       string            `json:"gateway4,omitempty"`
	Gateway6       string            `json:"gateway6,omitempty"`
	Profiles       []string          `json:"profiles,omitempty"`
	Labels         map[string]string `json:"labels,omitempty"`
	NATs           []NAT             `json:"nats,omitempty"`
	AllowedSources []string          `json:"allowedSources,omitempty"`
	Groups         []string          `json:"groups,omitempty"`
}

// Match selects interfaces by all that is not empty.
type Match struct {
	Interface string `json:"interface,omitempty"`
	MAC       string `json:"mac,omitempty"` // of the host's end
	Alias     string `json:"alias,omitempty"`
}

// NAT is a floating address.
type NAT struct {
	Internal string `json:"internal"`
	External string `json:"external"`
}

// Check returns an error if an entry is for no interface, or for all.
func (l List) Check() error {
	for i, e := range l.Endpoints {
		if e.Match == (Match{}) {
			return fmt.Errorf("endpoints[%d].match is empty: want interface, mac or alias", i)
		}
	}
	return l.Groups.check()
}

// of returns the endpoint for an interface; nil: there is none.
func (l List) of(i *endpointpb.Interface) *endpointpb.Endpoint {
	for _, e := range l.Endpoints {
		m := e.Match
		if (m.Interface == "" || m.Interface == i.GetName()) && (m.MAC == "" || m.MAC == i.GetMac()) && (m.Alias == "" || m.Alias == i.GetAlias()) {
			return e.message()
		}
	}
	return nil
}

func (e Entry) message() *endpointpb.Endpoint {
	out := &endpointpb.Endpoint{
		Namespace: e.Namespace, Workload: e.Workload, Endpoint: e.Endpoint, Mac: e.MAC, Addresses: e.Addresses, Gateway4: e.Gateway4, Gateway6: e.Gateway6,
		Profiles: e.Profiles, Labels: e.Labels, AllowedSources: e.AllowedSources, Groups: e.Groups,
	}
	for _, n := range e.NATs {
		out.Nats = append(out.Nats, &endpointpb.NAT{Internal: n.Internal, External: n.External})
	}
	return out
}

// Config configures a plugin.
type Config struct {
	Socket             string // of the agent
	Name, Orchestrator string
	Read               func() (List, error) // called again and again
	Say                func(format string, args ...any)
}

// Times.
const (
	reread = time.Second
	again  = time.Second // after the agent has gone
)

// Run answers the agent until the context ends. It connects again when the agent has gone.
func Run(ctx context.Context, cfg Config) error {
	list, err := cfg.Read()
	if err == nil {
		err = list.Check()
	}
	if err != nil {
		return err
	}
	last := ""
	for {
		err := once(ctx, cfg, &list)
		if ctx.Err() != nil {
			return nil
		}
		if why := fmt.Sprint(err); why != last {
			cfg.Say("disconnected: %v", err)
			last = why
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(again):
		}
	}
}

// session is one connection to the agent.
type session struct {
	cfg    Config
	stream grpc.BidiStreamingClient[endpointpb.FromPlugin, endpointpb.FromAgent]
	list   *List
	asked  map[string]*endpointpb.Interface
	given  map[string]*endpointpb.Endpoint // what the agent was given, by interface
	groups map[string]*endpointpb.Group    // what was announced, by namespace and name
}

func once(ctx context.Context, cfg Config, list *List) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	conn, err := grpc.NewClient("unix:"+cfg.Socket, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return err
	}
	defer conn.Close()
	stream, err := endpointpb.NewEndpointsClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	s := &session{cfg, stream, list, map[string]*endpointpb.Interface{}, map[string]*endpointpb.Endpoint{}, map[string]*endpointpb.Group{}}
	if err := s.send(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Register{Register: &endpointpb.Register{Name: cfg.Name, Orchestrator: cfg.Orchestrator}}}); err != nil {
		return err
	}
	received := make(chan *endpointpb.FromAgent)
	ended := make(chan error, 1)
	go func() {
		for {
			m, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case received <- m:
			case <-ctx.Done():
				return
			}
		}
	}()
	tick := time.NewTicker(reread)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-ended:
			return err
		case m := <-received:
			err = s.handle(m)
		case <-tick.C:
			err = s.reload()
		}
		if err != nil {
			return err
		}
	}
}

func (s *session) send(m *endpointpb.FromPlugin) error { return s.stream.Send(m) }

// handle takes what the agent says.
func (s *session) handle(m *endpointpb.FromAgent) error {
	switch say := m.GetSay().(type) {
	case *endpointpb.FromAgent_Registered:
		s.cfg.Say("registered at node %s, whose workloads' interfaces begin with %v", say.Registered.GetNode(), say.Registered.GetPrefixes())
		return s.announceAll()
	case *endpointpb.FromAgent_Ask:
		i := say.Ask.GetInterface()
		e := s.list.of(i)
		s.asked[i.GetName()] = i
		s.cfg.Say("asked %s (index %d, MAC %s, alias %q): %s", i.GetName(), i.GetIndex(), i.GetMac(), i.GetAlias(), map[bool]string{true: "mine", false: "not mine"}[e != nil])
		if e != nil {
			s.given[i.GetName()] = e
		}
		return s.send(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Answer{Answer: &endpointpb.Answer{Number: say.Ask.GetNumber(), Endpoint: e}}})
	case *endpointpb.FromAgent_Group:
		s.event(say.Group)
	case *endpointpb.FromAgent_Event:
		e := say.Event
		switch e.GetKind() {
		case endpointpb.Event_PROVISIONED:
			s.cfg.Say("provisioned %s: %s%s", e.GetInterface(), e.GetEndpoint(), and(e.GetReason()))
		case endpointpb.Event_FAILED:
			s.cfg.Say("failed %s: %s", e.GetInterface(), e.GetReason())
		case endpointpb.Event_GONE:
			delete(s.asked, e.GetInterface())
			delete(s.given, e.GetInterface())
			s.cfg.Say("gone %s: %s", e.GetInterface(), e.GetReason())
		}
	}
	return nil
}

// reload reads the list again, and hands over and withdraws what has changed.
func (s *session) reload() error {
	list, err := s.cfg.Read()
	if err == nil {
		err = list.Check()
	}
	if err != nil {
		s.cfg.Say("the list cannot be read, and stays as it was: %v", err)
		return nil
	}
	if reflect.DeepEqual(list, *s.list) {
		return nil
	}
	was := *s.list
	*s.list = list
	if err := s.changeGroups(was.Groups); err != nil {
		return err
	}
	now := map[string]*endpointpb.Endpoint{}
	for _, e := range list.Endpoints {
		if name := e.Match.Interface; name != "" && s.asked[name] == nil {
			now[name] = e.message() // it need not be there yet
		}
	}
	for name, i := range s.asked {
		if e := list.of(i); e != nil {
			now[name] = e
		}
	}
	return s.change(now)
}

// change gives the agent what it does not have.
func (s *session) change(now map[string]*endpointpb.Endpoint) error {
	names := []string{}
	for name := range s.given {
		names = append(names, name)
	}
	for name := range now {
		if s.given[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		var err error
		switch {
		case now[name] == nil:
			delete(s.given, name)
			err = s.send(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Withdraw{Withdraw: &endpointpb.Withdraw{Interface: name}}})
		case !proto.Equal(now[name], s.given[name]):
			s.given[name] = now[name]
			err = s.send(&endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_HandOver{HandOver: &endpointpb.HandOver{Interface: name, Endpoint: now[name]}}})
		}
		if err != nil {
			return err
		}
	}
	return nil
}
