package endpointapi_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi/plugin"
)

// agent is a server on a socket, in a namespace of its own; what it has done is in jobs.
type agent struct {
	ns     *netnstest.NS
	socket string
	jobs   chan *endpointapi.Job
}

func run(t *testing.T) *agent {
	t.Helper()
	a := &agent{ns: netnstest.New(t), socket: filepath.Join(t.TempDir(), "endpoint.sock"), jobs: make(chan *endpointapi.Job, 100)}
	s := endpointapi.NewServer(endpointapi.Config{
		Node: "h1", Version: "v1", Socket: a.socket, Interfaces: ifmon.New(a.ns.Rtnl()), Link: a.ns.Rtnl().Link, Log: slog.New(slog.DiscardHandler),
		Do: func(_ context.Context, j *endpointapi.Job) error {
			a.jobs <- j
			return nil
		},
	})
	s.Configure(config.Settings{InterfacePrefixes: []string{"tap"}})
	s.Update(nil, true)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
	})
	for {
		if _, err := os.Stat(a.socket); err == nil {
			return a
		}
		<-time.After(time.Millisecond)
	}
}

// connect returns a plugin's stream.
func (a *agent) connect(t *testing.T) grpc.BidiStreamingClient[endpointpb.FromPlugin, endpointpb.FromAgent] {
	t.Helper()
	conn, err := grpc.NewClient("unix:"+a.socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	stream, err := endpointpb.NewEndpointsClient(conn).Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func register(name string) *endpointpb.FromPlugin {
	return &endpointpb.FromPlugin{Say: &endpointpb.FromPlugin_Register{Register: &endpointpb.Register{Name: name, Orchestrator: "demo"}}}
}

func TestAConnectionThatEndsSaysWhy(t *testing.T) {
	a := run(t)
	for _, tt := range []struct {
		name string
		send []*endpointpb.FromPlugin
		want codes.Code
	}{
		{"nothing is registered", []*endpointpb.FromPlugin{{Say: &endpointpb.FromPlugin_Withdraw{Withdraw: &endpointpb.Withdraw{Interface: "tap1"}}}}, codes.InvalidArgument},
		{"it registers twice", []*endpointpb.FromPlugin{register("p"), register("p")}, codes.InvalidArgument},
		{"a message says nothing", []*endpointpb.FromPlugin{register("p"), {}}, codes.InvalidArgument},
		{"it has no name", []*endpointpb.FromPlugin{register("")}, codes.InvalidArgument},
		{"it says too much", []*endpointpb.FromPlugin{register(strings.Repeat("p", 1<<20))}, codes.ResourceExhausted},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := a.connect(t)
			for _, m := range tt.send {
				if err := s.Send(m); err != nil {
					break // it has ended already
				}
			}
			for {
				if _, err := s.Recv(); err != nil {
					if status.Code(err) != tt.want {
						t.Errorf("it ended with %v, want %v", err, tt.want)
					}
					return
				}
			}
		})
	}
	t.Run("the same name registers elsewhere", func(t *testing.T) {
		first, second := a.connect(t), a.connect(t)
		if err := first.Send(register("p")); err != nil {
			t.Fatal(err)
		}
		if m, err := first.Recv(); err != nil || m.GetRegistered().GetNode() != "h1" {
			t.Fatalf("the answer is %v, %v", m, err)
		}
		if err := second.Send(register("p")); err != nil {
			t.Fatal(err)
		}
		if _, err := first.Recv(); status.Code(err) != codes.Aborted {
			t.Errorf("the first ended with %v", err)
		}
	})
}

// TestTheGuidesPlugin: the plugin that docs/endpoint-api.md shows, word for word.
func TestTheGuidesPlugin(t *testing.T) {
	source, err := os.ReadFile("example_test.go")
	if err != nil {
		t.Fatal(err)
	}
	guide, err := os.ReadFile("../../../docs/endpoint-api.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(source), "// serve is")
	if !strings.Contains(string(guide), "// serve is"+body) {
		t.Error("the guide shows another plugin than example_test.go")
	}
	a := run(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, a.socket, func(i *endpointpb.Interface) *endpointpb.Endpoint {
			return &endpointpb.Endpoint{Workload: i.GetName(), Endpoint: "eth0", Addresses: []string{"10.0.0.1"}}
		})
	}()
	a.ns.Veth("tap1", "peer1")
	if j := <-a.jobs; j.Want == nil || j.Want.Metadata.Name != "h1-example-tap1-eth0" {
		t.Errorf("the job is %+v", j)
	}
	cancel()
	if err := <-done; status.Code(err) != codes.Canceled {
		t.Errorf("it ended with %v", err)
	}
}

// list is what a reference plugin reads.
type list struct {
	mu  sync.Mutex
	now plugin.List
}

func (l *list) read() (plugin.List, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now, nil
}

func (l *list) become(entries ...plugin.Entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = plugin.List{Endpoints: entries}
}

func (l *list) announce(partial bool, groups ...plugin.Group) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now = plugin.List{Groups: &plugin.Groups{All: groups, Partial: partial}}
}

func entry(match plugin.Match, address string) plugin.Entry {
	return plugin.Entry{Match: match, Workload: "vm1", Endpoint: "eth0", Addresses: []string{address}}
}

// TestTheReferencePluginFollowsItsList: what is new is handed over, what has changed, too, and what is gone is withdrawn.
func TestTheReferencePluginFollowsItsList(t *testing.T) {
	a := run(t)
	l := &list{}
	until, end := a.follow(t, l)
	until("registered at node h1")
	a.ns.Veth("tap1", "peer1")
	until("asked tap1")
	l.become(entry(plugin.Match{Interface: "tap1"}, "10.0.0.1"))
	until("provisioned tap1: default/h1-demo-vm1-eth0")
	l.become(entry(plugin.Match{Interface: "tap1"}, "10.0.0.2"))
	until("provisioned tap1: default/h1-demo-vm1-eth0")
	l.become()
	until("gone tap1: withdrawn")
	l.become(entry(plugin.Match{Alias: "vm1"}, "10.0.0.3"))
	if err := a.ns.Rtnl().SetAlias(a.ns.Link("tap1").Index, "vm1"); err != nil {
		t.Fatal(err)
	}
	until("provisioned tap1: default/h1-demo-vm1-eth0")
	a.ns.Delete("tap1")
	until("gone tap1: the interface is gone")
	end()
}

// TestTheReferencePluginAnnouncesItsGroups: all of them, then what changes; and nothing of a part.
func TestTheReferencePluginAnnouncesItsGroups(t *testing.T) {
	a, l := run(t), &list{}
	l.announce(true, plugin.Group{Name: "other"})
	until, end := a.follow(t, l)
	until("announced 1 groups in part")
	l.announce(false, plugin.Group{Name: "db", Ingress: []plugin.Rule{{Protocol: "tcp", Ports: []string{"80", "90-99"}, Groups: []string{"web"}}}})
	until("announced 1 groups")
	if j := <-a.jobs; j.Policy == nil || j.Policy.Metadata.Name != "group-demo.db" {
		t.Errorf("the first job is %+v", j)
	}
	until("in force group default/db; its rules name groups that are not announced, and allow nothing there: web")
	l.announce(false, plugin.Group{Name: "web"}, plugin.Group{Name: "Bad"})
	until("failed group default/Bad; refused: name", "gone group default/db; withdrawn")
	end()
}

// follow has a reference plugin follow a list. The first function waits until it says lines, in any order, the second ends it.
func (a *agent) follow(t *testing.T, l *list) (until func(lines ...string), end func()) {
	t.Helper()
	says := make(chan string, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- plugin.Run(ctx, plugin.Config{
			Socket: a.socket, Name: "p", Orchestrator: "demo", Read: l.read,
			Say: func(format string, args ...any) { says <- fmt.Sprintf(format, args...) },
		})
	}()
	until = func(lines ...string) {
		t.Helper()
		for deadline := time.After(2 * time.Minute); len(lines) > 0; {
			select {
			case is := <-says:
				lines = slices.DeleteFunc(lines, func(line string) bool { return strings.HasPrefix(is, line) })
			case <-deadline:
				t.Fatalf("never said %q", lines)
			}
		}
	}
	return until, func() {
		t.Helper()
		cancel()
		if err := <-done; err != nil {
			t.Errorf("it ended with %v", err)
		}
	}
}
