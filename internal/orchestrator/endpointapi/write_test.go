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
