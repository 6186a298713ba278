package etcdadmin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdadmin"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// another configures one more member, of that name.
func (f *fixture) another(name string) member.Config {
	dir := filepath.Dir(f.configs[0].Dir)
	cfg := member.Config{
		Name: name, Dir: filepath.Join(dir, name), ListenClient: []string{"unix://" + filepath.Join(dir, name+".sock")},
		ListenPeer: []string{"http://" + machinetest.Address(f.t)}, Join: true,
	}
	return cfg
}

// reachable starts the only member again, with a name and an address for others.
func (f *fixture) reachable(name string) {
	f.t.Helper()
	f.stop(0)
	f.configs[0].Name, f.configs[0].ListenPeer = name, []string{"http://" + machinetest.Address(f.t)}
	f.start()
}

// join has a member join, as `twill etcd join` does.
func (f *fixture) join(cfg member.Config, replace string) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), 2*patience)
	defer cancel()
	cfg.Cluster = f.joined(cfg.Name, cfg.ListenPeer, replace)
	if again := f.joined(cfg.Name, cfg.ListenPeer, replace); again != cfg.Cluster { // as after a crash before it started
		f.t.Fatalf("joined again as %q, want %q", again, cfg.Cluster)
	}
	f.configs = append(f.configs, cfg)
	f.members = append(f.members, nil)
	f.start()
	if err := f.admin.Promote(ctx, cfg.ListenPeer); err != nil {
		f.t.Fatal(err)
	}
}

// joined adds a member, and returns all.
func (f *fixture) joined(name string, peers []string, replace string) (cluster string) {
	f.t.Helper()
	f.again("join", func() (err error) {
		cluster, err = f.admin.Join(f.t.Context(), name, peers, replace)
		return err
	})
	return cluster
}

// joining is what Join of a member says.
func (f *fixture) joining(cfg member.Config, replace string) func() error {
	return func() error {
		_, err := f.admin.Join(f.t.Context(), cfg.Name, cfg.ListenPeer, replace)
		return err
	}
}

// leaving is what Leave of a member says.
func (f *fixture) leaving(name string) func() error {
	return func() error { return f.admin.Leave(f.t.Context(), name) }
}

// wants does what must be refused, again where another reason is given: a member that is busy for two seconds does not answer.
func (f *fixture) wants(refusal string, do func() error) {
	f.t.Helper()
	refused := func(err error) bool {
		return errors.Is(err, etcdadmin.ErrRefused) && strings.Contains(err.Error(), refusal)
	}
	err := do()
	for until := time.Now().Add(patience); err != nil && !refused(err) && time.Now().Before(until); err = do() {
		f.t.Logf("refused, and not because of %q: %v", refusal, err)
		<-time.After(20 * time.Millisecond)
	}
	if !refused(err) {
		f.t.Errorf("got %v, want it to say %q", err, refusal)
	}
}

// written writes keys one after the other by these members until it is called, and then returns how many writes were acknowledged.
func (f *fixture) written(by ...member.Config) (end func() int) {
	f.t.Helper()
	cfg := datastore.Config{RequestTimeout: time.Minute}
	for _, m := range by {
		cfg.Endpoints = append(cfg.Endpoints, m.ListenClient...)
	}
	f.store = must(etcdstore.New(f.t.Context(), cfg))(f.t)
	f.t.Cleanup(func() { f.store.Close() })
	stop, done := make(chan struct{}), make(chan int)
	go func() {
		for n := 0; ; n++ {
			select {
			case <-stop:
				done <- n
				return
			default:
			}
			if err := f.put(fmt.Sprintf("/w/%06d", n), "v"); err != nil {
				f.t.Error(err)
				<-stop
				done <- n
				return
			}
		}
	}()
	end = sync.OnceValue(func() int {
		close(stop)
		return <-done
	})
	f.t.Cleanup(func() { end() })
	return end
}

// TestASocketOnlyMemberBecomesTheFirstOfThreeAndTheLast under writes, of which none is lost: the member of a node, that others join; one whose disk is lost and
// that comes back; and all but another one leave.
func TestASocketOnlyMemberBecomesTheFirstOfThreeAndTheLast(t *testing.T) {
	f := newFixture(t, 1, func(*member.Config) {})
	if err := f.put("/k", "from the time when it was alone"); err != nil {
		t.Fatal(err)
	}
	h2, h3 := f.another("h2"), f.another("h3")
	f.wants("twill is alone and cannot be reached by others; start it again with --listen-peer first", f.joining(h2, ""))

	f.reachable("h1")
	c := f.status("the first to say how it is reached", func(c etcdadmin.Cluster) bool {
		return c.Healthy == 1 && c.Members[0].Name == "h1" && c.Members[0].PeerURLs[0] == f.configs[0].ListenPeer[0]
	})
	f.wants("h1 is the last member that votes", f.leaving("h1"))
	namesake := h2
	namesake.Name = "h1"
	f.wants("there is a member h1 already", f.joining(namesake, ""))

	end := f.written(f.configs[0], h2, h3)
	f.join(h2, "")
	f.join(h3, "")
	f.status("three that vote", func(c etcdadmin.Cluster) bool { return c.MayFail == 1 && len(c.Problems()) == 0 })

	f.stop(2)
	f.configs, f.members = f.configs[:2], f.members[:2]
	f.wants("of the 2 members that would be left 1 would answer", f.leaving("h2"))
	if err := os.RemoveAll(h3.Dir); err != nil {
		t.Fatal(err)
	}
	f.wants("h3, which is reached at "+h3.ListenPeer[0]+", has run before, and its data is not here", f.joining(h3, ""))
	f.wants("h3: it does not answer", f.joining(f.another("h4"), ""))
	f.wants("h2 is alive, and cannot be replaced", f.joining(f.another("h4"), "h2"))
	f.join(h3, "h3")
	f.status("three again", func(c etcdadmin.Cluster) bool { return c.MayFail == 1 && len(c.Problems()) == 0 })

	for i, id := range []string{"h2", c.Members[0].ID} { // of which the latter is the member that was the first
		f.leave(id)
		gone := f.members[1-i]
		select {
		case <-gone.Done(): // then its process ends
			gone.Close()
		case <-time.After(patience):
			t.Errorf("%s goes on", id)
		}
		f.status("fewer", func(c etcdadmin.Cluster) bool { return c.Voters == 2-i && c.MayFail >= 0 })
	}
	n := end()
	f.holds(h3, n)
}

// TestAMemberThatIsGivenAVoteIsAskedAgain: until it has heard of it, it says nothing of members.
func TestAMemberThatIsGivenAVoteIsAskedAgain(t *testing.T) {
	f := newFixture(t, 1, func(*member.Config) {})
	f.reachable("h1")
	h2 := f.another("h2")
	h2.Cluster = f.joined(h2.Name, h2.ListenPeer, "")
	f.configs, f.members = append(f.configs, h2), append(f.members, nil)
	f.start()
	ofH2 := must(etcdadmin.Open(t.Context(), datastore.Config{Endpoints: h2.ListenClient}))(t)
	defer ofH2.Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for learns := false; !learns; {
		short, cancel := context.WithTimeout(ctx, time.Second)
		_, err := ofH2.Status(short)
		cancel()
		if err == nil || ctx.Err() != nil {
			t.Fatalf("h2 has no vote, and said %v", err)
		}
		learns = strings.Contains(err.Error(), "learner") // else it was too busy to say so
	}
	asked := make(chan error, 1)
	go func() {
		c, err := ofH2.Status(ctx)
		for errors.Is(err, datastore.ErrUnavailable) && !strings.Contains(err.Error(), "learner") && ctx.Err() == nil {
			c, err = ofH2.Status(ctx) // it had no answer for two seconds
		}
		if err == nil && len(c.Members) != 2 {
			err = fmt.Errorf("it has %d members", len(c.Members))
		}
		asked <- err
	}()
	if err := f.admin.Promote(ctx, h2.ListenPeer); err != nil {
		t.Fatal(err)
	}
	if err := <-asked; err != nil {
		t.Error(err)
	}
}

// leave takes a member out by a client of the last one, since that of the fixture may speak to the one that goes.
func (f *fixture) leave(name string) {
	f.t.Helper()
	last := f.configs[len(f.configs)-1]
	f.admin.Close()
	f.admin = must(etcdadmin.Open(f.t.Context(), datastore.Config{Endpoints: last.ListenClient}))(f.t)
	f.again("leave", func() error {
		err := f.leaving(name)()
		if errors.Is(err, datastore.ErrNotFound) {
			return nil // an earlier try was carried out, though its answer was lost
		}
		return err
	})
}

// holds asks one member for all that was acknowledged.
func (f *fixture) holds(cfg member.Config, n int) {
	f.t.Helper()
	s := must(etcdstore.New(f.t.Context(), datastore.Config{Endpoints: cfg.ListenClient, RequestTimeout: time.Minute}))(f.t)
	defer s.Close()
	snap, err := s.List(f.t.Context(), "/w/")
	if err != nil || n == 0 || len(snap.Items) < n {
		f.t.Errorf("%d keys of %d that were written, error %v", len(snap.Items), n, err)
	}
	if kv, err := s.Get(f.t.Context(), "/k"); err != nil || string(kv.Value) != "from the time when it was alone" {
		f.t.Errorf("the first key is %q, error %v", kv.Value, err)
	}
}
