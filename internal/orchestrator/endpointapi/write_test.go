package endpointapi

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
)

// kernel is the rest of an agent.
type kernel struct {
	log      []string
	notReady []string
	inForce  func(ctx context.Context) error
}

func (k *kernel) Overlay(_ context.Context, us []api.Update) error {
	for _, u := range us {
		k.log = append(k.log, fmt.Sprintf("overlay %t", u.Value != nil))
	}
	return nil
}

func (k *kernel) InForce(ctx context.Context, id intent.EndpointID) error {
	k.log = append(k.log, "await "+id.Name)
	if k.inForce != nil {
		return k.inForce(ctx)
	}
	return nil
}

func (k *kernel) PolicyInForce(ctx context.Context, u api.Update) error {
	k.log = append(k.log, fmt.Sprintf("await policy %t", u.Value != nil))
	if k.inForce != nil {
		return k.inForce(ctx)
	}
	return nil
}

func (k *kernel) NotReady() []string { return k.notReady }

func TestHowAnEndpointIsWritten(t *testing.T) {
	vm1 := of("p", "tap1", "vm1", "10.0.0.1")
	key, err := api.Key(vm1)
	if err != nil {
		t.Fatal(err)
	}
	stranger := of("p", "tap1", "vm1", "10.0.0.1")
	stranger.Metadata.Annotations = nil
	for _, tt := range []struct {
		name  string
		has   *api.WorkloadEndpoint
		job   Job
		kern  kernel
		taken string // an address that IPAM has assigned
		log   string // of the kernel
		err   string
		kept  bool // something is stored in the end
	}{
		{name: "new", job: Job{Want: vm1}, log: "overlay true, await h1-demo-vm1-eth0", kept: true},
		{name: "the same again", has: of("p", "tap1", "vm1", "10.0.0.1"), job: Job{Want: vm1}, log: "overlay true, await h1-demo-vm1-eth0", kept: true},
		{name: "another's", has: stranger, job: Job{Want: vm1}, err: "WorkloadEndpoint default/h1-demo-vm1-eth0 is not this plugin's", kept: true},
		{name: "another plugin's", has: of("q", "tap1", "vm1", "10.0.0.1"), job: Job{Want: vm1}, err: "is not this plugin's", kept: true},
		{name: "deleted", has: of("p", "tap1", "vm1", "10.0.0.1"), job: Job{Remove: []string{key}}, log: "overlay false"},
		{name: "another's, to be deleted", has: stranger, job: Job{Remove: []string{key}}, log: "overlay true", kept: true},
		{name: "gone already", job: Job{Remove: []string{key}}, log: "overlay false"},
		{name: "an address that IPAM gave to somebody", taken: "10.0.0.1", job: Job{Want: vm1}, err: "address 10.0.0.1 is assigned to h"},
		{name: "the agent is not ready", kern: kernel{notReady: []string{"why"}}, job: Job{Want: vm1}, err: "the agent is not ready: why"},
		{name: "not in force", kern: kernel{inForce: func(context.Context) error { return errors.New("refused by the kernel") }}, job: Job{Want: vm1}, log: "overlay true, await h1-demo-vm1-eth0", err: "refused by the kernel", kept: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := memstore.New()
			if tt.has != nil {
				if _, err := resources.CreateNew(t.Context(), s, tt.has); err != nil {
					t.Fatal(err)
				}
			}
			w := NewWriter(Writer{Store: s, Kernel: &tt.kern, Address: func(_ context.Context, a netip.Addr) (ipam.Lease, error) {
				return ipam.Lease{Assigned: a.String() == tt.taken, Handle: "h"}, nil
			}})
			tt.job.Plugin = "p"
			if err := w.Do(t.Context(), &tt.job); tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("the error is %v, want %q", err, tt.err)
			}
			if got := strings.Join(tt.kern.log, ", "); got != tt.log {
				t.Errorf("done was %q, want %q", got, tt.log)
			}
			if _, err := s.Get(t.Context(), key); tt.kept != (err == nil) || err != nil && !errors.Is(err, datastore.ErrNotFound) {
				t.Errorf("stored: %v, want %v", err, tt.kept)
			}
		})
	}
}

// TestAPluginDoesNotWaitForever: the plugin waits no longer, and the reason is that of the kernel.
func TestAPluginDoesNotWaitForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{inForce: func(ctx context.Context) error {
			<-ctx.Done()
			return fmt.Errorf("the interface is down: %w", ctx.Err())
		}}
		err := NewWriter(Writer{Store: memstore.New(), Kernel: k}).Do(t.Context(), &Job{Plugin: "p", Want: of("p", "tap1", "vm1", "10.0.0.1")})
		if _, waits := errors.AsType[errNotYet](err); !waits || !strings.Contains(err.Error(), "the interface is down") {
			t.Errorf("the error is %v", err)
		}
	})
}

func TestHowAGroupIsWritten(t *testing.T) {
	a, err := judgeGroup("demo", grp("db", "web"))
	if err != nil {
		t.Fatal(err)
	}
	key := a.id.key()
	by := func(plugin, node string) *api.NetworkPolicy {
		p, _ := a.policy(plugin, node, func(id groupID) (string, bool) { return id.members(""), true })
		return p
	}
	for _, tt := range []struct {
		name string
		has  *api.NetworkPolicy
		job  Job
		kern kernel
		log  string // of the kernel
		err  string
		kept string // the plugin and the node of what is stored in the end
	}{
		{name: "new", job: Job{Policy: by("p", "h1"), Fresh: true}, log: "await policy true", kept: "p h1"},
		{name: "the same again", has: by("p", "h1"), job: Job{Policy: by("p", "h1")}, log: "await policy true", kept: "p h1"},
		{name: "that of another host", has: by("p", "h2"), job: Job{Policy: by("p", "h1"), Fresh: true}, log: "await policy true", kept: "p h1"},
		{name: "that of another host by now", has: by("p", "h2"), job: Job{Policy: by("p", "h1")}, err: "plugin p has announced it at node h2 since", kept: "p h2"},
		{name: "deleted by now", job: Job{Policy: by("p", "h1")}, err: "somebody has deleted its policy"},
		{name: "another plugin's", has: by("q", "h1"), job: Job{Policy: by("p", "h1"), Fresh: true}, err: "NetworkPolicy default/group-demo.db is not this plugin's", kept: "q h1"},
		{name: "nobody's", has: by("", ""), job: Job{Policy: by("p", "h1"), Fresh: true}, err: "is not this plugin's", kept: " "},
		{name: "taken back", has: by("p", "h1"), job: Job{Node: "h1"}, log: "await policy false"},
		{name: "taken back, of another host", has: by("p", "h2"), job: Job{Node: "h2"}, log: "await policy false"},
		{name: "taken back, and it is another host's by now", has: by("p", "h2"), job: Job{Node: "h1"}, err: "plugin p has announced it at node h2 since", kept: "p h2"},
		{name: "taken back, and it is somebody else's", has: by("q", "h1"), job: Job{Node: "h1"}, log: "await policy true", kept: "q h1"},
		{name: "taken back, and it is gone", job: Job{Node: "h1"}, log: "await policy false"},
		{name: "the agent is not ready", kern: kernel{notReady: []string{"why"}}, job: Job{Policy: by("p", "h1"), Fresh: true}, err: "the agent is not ready: why"},
		{name: "refused by the kernel", kern: kernel{inForce: func(context.Context) error { return errors.New("no such thing") }}, job: Job{Policy: by("p", "h1"), Fresh: true}, log: "await policy true", err: "no such thing", kept: "p h1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := memstore.New()
			if tt.has != nil {
				if _, err := resources.CreateNew(t.Context(), s, tt.has); err != nil {
					t.Fatal(err)
				}
			}
			tt.job.Plugin, tt.job.Group = "p", key
			if tt.job.Policy != nil {
				tt.job.Node = "h1"
			}
			if err := NewWriter(Writer{Store: s, Kernel: &tt.kern}).Do(t.Context(), &tt.job); tt.err == "" && err != nil || tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("the error is %v, want %q", err, tt.err)
			}
			if got := strings.Join(tt.kern.log, ", "); got != tt.log {
				t.Errorf("done was %q, want %q", got, tt.log)
			}
			kept := ""
			if u, err := s.Get(t.Context(), key); err == nil {
				g, _ := readGroup(u)
				kept = g.plugin + " " + g.node
			}
			if kept != tt.kept {
				t.Errorf("stored is that of %q, want %q", kept, tt.kept)
			}
		})
	}
}
