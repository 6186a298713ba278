package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/syncer"
)

func TestTheLastPlanIsReadAsItWasWrittenAndIsNobodyElses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "twill", planFile)
	want := plan.Plan{Node: "h1", AS: 64512, Sessions: []plan.Session{{Peer: netip.MustParseAddr("192.0.2.2"), Password: &plan.Secret{Name: "a", Key: "b"}, Restart: time.Second}}}
	for range 2 { // the second over the first
		if err := save(file, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if names, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(file); err == nil {
		t.Error("half a plan was read")
	}
}

func TestPasswordsAreFiles(t *testing.T) {
	d := newSecretDir(t.TempDir())
	p := plan.Plan{Sessions: []plan.Session{{Password: &plan.Secret{Name: "bgp", Key: "tor"}}}}
	none := d.stamps(p)
	if _, err := d.read(*p.Sessions[0].Password); err == nil {
		t.Error("a password that is not there was read")
	}
	write := func(text string) {
		t.Helper()
		path := filepath.Join(d.dir, "bgp", "tor")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\n")
	if _, err := d.read(*p.Sessions[0].Password); err == nil {
		t.Error("an empty password was taken")
	}
	write(" with spaces \n")
	if got, err := d.read(*p.Sessions[0].Password); got != " with spaces " || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	first := d.stamps(p)
	write("another\n")
	if second := d.stamps(p); first == none || second == first {
		t.Errorf("a change is not seen: %q, %q, %q", none, first, second)
	}
}

func TestAPasswordThatCannotBeReadForAMomentIsTheLastOne(t *testing.T) {
	d := newSecretDir(t.TempDir())
	secret := plan.Secret{Name: "bgp", Key: "tor"}
	path := d.path(secret)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := func(when, want string, fails bool) {
		t.Helper()
		if got, err := d.read(secret); got != want || (err != nil) != fails {
			t.Errorf("%s: %q, %v; want %q, an error: %v", when, got, err, want, fails)
		}
	}
	is("never there", "", true)
	write("sesame\n")
	is("there", "sesame", false)
	write("")
	is("being written", "sesame", true)
	write(strings.Repeat("x", 81))
	is("too long for TCP", "sesame", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	is("gone", "sesame", true)
	if got, err := d.read(plan.Secret{Name: "bgp", Key: "other"}); got != "" || err == nil {
		t.Errorf("another one is %q, %v", got, err)
	}
	write("open")
	is("there again", "open", false)
}

// planning is a planSource of node h1 in virtual time, in whose plans the session to h2 has a password.
type planning struct {
	*testing.T
	k       *planSource
	dir     *secretDir
	plans   chan plan.Plan
	batches chan syncer.Batch
}

// plans runs a test with a planSource that has a stored plan, if there was one.
func plans(t *testing.T, before plan.Plan, test func(*planning)) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		p := &planning{T: t, dir: newSecretDir(dir), plans: make(chan plan.Plan), batches: make(chan syncer.Batch)}
		p.k = newPlanSource(Config{Node: "h1", RouterID: "10.0.0.9", Dir: filepath.Join(dir, "state"), Log: slog.New(slog.DiscardHandler)}, p.plans, p.dir)
		p.write("sesame")
		p.k.last, p.k.marks = before, p.dir.stamps(before)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- p.k.follow(ctx, p.batches) }()
		synctest.Wait()
		test(p)
		cancel()
		<-done
	})
}

func (p *planning) write(password string) {
	p.Helper()
	path := p.dir.path(plan.Secret{Name: "bgp", Key: "mesh"})
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(password), 0o600)); err != nil {
		p.Fatal(err)
	}
}

// receive delivers the datastore's content, and returns the plan.
func (p *planning) receive() plan.Plan {
	p.Helper()
	p.batches <- syncer.Batch{InSync: true, Updates: []api.Update{
		{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)},
		{Key: api.ResourcesPrefix + "nodes/h2", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`)},
		{Key: api.ResourcesPrefix + "bgpconfigurations/default", Value: []byte(`{"spec":{"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}`)},
	}}
	first := <-p.plans
	if len(first.Sessions) != 1 || first.Sessions[0].Password == nil {
		p.Fatalf("%+v", first)
	}
	return first
}

func (p *planning) quiet() {
	p.Helper()
	select {
	case got := <-p.plans:
		p.Errorf("nothing has changed, and there is a plan: %+v", got)
	case <-time.After(3 * secretPollInterval):
	}
	synctest.Wait() // the source looks at this very moment, and must not see a file that is half changed
}

func (p *planning) again(want plan.Plan) {
	p.Helper()
	select {
	case got := <-p.plans:
		if !reflect.DeepEqual(got, want) {
			p.Errorf("%+v, want %+v", got, want)
		}
	case <-time.After(2 * secretPollInterval):
		p.Error("the password has changed, and the speaker is given no new plan")
	}
}

// TestAPasswordThatChangesIsReadAgain: the datastore says nothing, so the plan is the one of before.
func TestAPasswordThatChangesIsReadAgain(t *testing.T) {
	plans(t, plan.Plan{}, func(p *planning) {
		first := p.receive()
		p.quiet()
		p.write("open sesame")
		p.again(first)
		p.quiet()
	})
	before := plan.Plan{Node: "h1", Sessions: []plan.Session{{Password: &plan.Secret{Name: "bgp", Key: "mesh"}}}}
	plans(t, before, func(p *planning) { // the datastore has not answered yet
		p.quiet()
		p.write("open sesame")
		p.again(before)
		p.quiet()
	})
}

// TestTheRouterIDThatIsAskedForIsInThePlan, and one that is none is refused.
func TestTheRouterIDThatIsAskedForIsInThePlan(t *testing.T) {
	plans(t, plan.Plan{}, func(p *planning) {
		if id := p.receive().RouterID; id != netip.MustParseAddr("10.0.0.9") {
			t.Errorf("the router id is %s", id)
		}
	})
	for _, run := range []func(context.Context, string) error{
		func(ctx context.Context, id string) error { return Run(ctx, Config{Node: "h1", RouterID: id}) },
		func(ctx context.Context, id string) error {
			return RunConfd(ctx, Confd{Config: Config{Node: "h1", RouterID: id}})
		},
	} {
		if err := run(t.Context(), "h1"); err == nil || !strings.Contains(err.Error(), `router id "h1"`) {
			t.Errorf("a router id that is none: %v", err)
		}
	}
}

func TestAPlanThatCannotBeKeptIsKeptLater(t *testing.T) {
	plans(t, plan.Plan{}, func(p *planning) {
		inTheWay := filepath.Dir(p.k.file)
		if err := os.WriteFile(inTheWay, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		first := p.receive()
		p.quiet()
		if err := os.Remove(inTheWay); err != nil {
			t.Fatal(err)
		}
		p.quiet()
		if kept, err := load(p.k.file); err != nil || !reflect.DeepEqual(kept, first) {
			t.Errorf("kept is %+v, %v; want %+v", kept, err, first)
		}
	})
}

// TestWhileTheDatastoreIsNotReadySessionsStayAsTheyAre: somebody may be moving the datastore, and what it lacks is not gone.
func TestWhileTheDatastoreIsNotReadySessionsStayAsTheyAre(t *testing.T) {
	const info = api.ResourcesPrefix + "clusterinformations/default"
	notReady := api.Update{Key: info, Value: []byte(`{"spec":{"datastoreReady":false}}`)}
	ready := api.Update{Key: info, Value: []byte(`{"spec":{"datastoreReady":true}}`)}
	gone := api.Update{Key: api.ResourcesPrefix + "nodes/h2"}
	self := api.Update{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)}
	say := func(p *planning, us ...api.Update) { p.batches <- syncer.Batch{InSync: true, Updates: us} }
	sessions := func(p *planning, want int) {
		p.Helper()
		select {
		case got := <-p.plans:
			if len(got.Sessions) != want {
				p.Errorf("the plan has the sessions %+v, want %d", got.Sessions, want)
			}
		case <-time.After(secretPollInterval):
			p.Error("the datastore is ready, and there is no plan")
		}
	}
	absent := api.Update{Key: info}
	for _, end := range [][]api.Update{{ready}, {absent, ready}} {
		plans(t, plan.Plan{}, func(p *planning) {
			first := p.receive()
			say(p, notReady, gone) // in one batch
			p.quiet()
			p.write("open sesame") // which is of this host
			p.again(first)
			say(p, self, gone)
			p.quiet()
			for _, u := range end {
				say(p, u)
				if u.Value == nil {
					p.quiet()
				}
			}
			sessions(p, 0)
		})
	}
	plans(t, plan.Plan{}, func(p *planning) { // it was ready, and all is lost
		p.receive()
		say(p, ready)
		say(p, absent, gone)
		p.quiet()
		say(p, ready)
		sessions(p, 0)
	})
	plans(t, plan.Plan{Sessions: []plan.Session{{}}}, func(p *planning) { // all was lost before this process began
		say(p, self, gone)
		p.quiet()
		say(p, ready)
		sessions(p, 0)
	})
	plans(t, plan.Plan{}, func(p *planning) { // not ready from the beginning
		say(p, notReady, self)
		p.quiet()
		say(p, ready)
		sessions(p, 0)
	})
	plans(t, plan.Plan{}, func(p *planning) { // what cannot be read says nothing new
		p.receive()
		say(p, notReady, gone)
		say(p, api.Update{Key: info, Value: []byte(`{`)})
		p.quiet()
	})
}
