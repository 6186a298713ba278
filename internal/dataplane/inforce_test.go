package dataplane

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// listener is a Follower that writes down what comes into force.
type listener struct{ got []string }

func (f *listener) InForce(b intent.Batch, lapsed bool) {
	line := fmt.Sprintf("%d endpoints %d removed", len(b.Endpoints), len(b.Removed))
	if lapsed {
		line += " lapsed"
	}
	f.got = append(f.got, line)
}

// lapsing is a policy driver whose table somebody changed.
type lapsing struct {
	fake
	lapsed bool
}

func (l *lapsing) Lapsed() bool {
	was := l.lapsed
	l.lapsed = false
	return was
}

func TestFollowersGetWhatIsInForceAndNothingElse(t *testing.T) {
	named := func(name string) intent.Batch {
		return intent.Batch{Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "ns", Name: name}, Link: "cali-" + name}}, InSync: true}
	}
	boom := errors.New("boom")
	for _, tt := range []struct {
		name  string
		steps func(b *bench, nft *lapsing)
		want  []string
	}{
		{"what is applied", func(b *bench, _ *lapsing) { b.batches <- named("a") }, []string{"1 endpoints 0 removed"}},
		{"after an attempt that failed, all of it is passed once one succeeded, as lapsed", func(b *bench, nft *lapsing) {
			nft.errs = []error{boom, boom}
			b.batches <- named("a")
			synctest.Wait()
			b.batches <- named("b")
		}, []string{"2 endpoints 0 removed lapsed"}},
		{"what went meanwhile is not there", func(b *bench, nft *lapsing) {
			nft.errs = []error{boom, boom}
			b.batches <- named("a")
			synctest.Wait()
			b.batches <- intent.Batch{Removed: []intent.Key{endpointKey}}
		}, []string{"0 endpoints 1 removed lapsed"}},
		{"after a repair, policy had lapsed", func(b *bench, nft *lapsing) {
			b.batches <- named("a")
			synctest.Wait()
			nft.lapsed = true
			b.batches <- intent.Batch{InSync: true}
		}, []string{"1 endpoints 0 removed", "0 endpoints 0 removed lapsed"}},
		{"a repair that fails is passed when it succeeds", func(b *bench, nft *lapsing) {
			b.batches <- named("a")
			synctest.Wait()
			nft.lapsed, nft.errs = true, []error{boom}
			b.batches <- intent.Batch{InSync: true}
		}, []string{"1 endpoints 0 removed", "0 endpoints 0 removed lapsed"}},
		{"one that failed alone is passed, and as lapsed when it is in force", func(b *bench, nft *lapsing) {
			nft.outcomes = endpointOutcome(boom, "")
			b.batches <- named("a")
			synctest.Wait()
			nft.outcomes = endpointOutcome(nil, "")
		}, []string{"1 endpoints 0 removed", "0 endpoints 0 removed lapsed"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, f := &journal{}, &listener{}
				nft := &lapsing{fake: fake{name: "nft", j: j}}
				run(t, Config{Policy: nft, Followers: []Follower{f}, Resync: -1}, j, func(b *bench) {
					tt.steps(b, nft)
					pass(time.Minute)
					synctest.Wait()
					if !slices.Equal(f.got, tt.want) {
						t.Errorf("it got %q, want %q", f.got, tt.want)
					}
				})
			})
		})
	}
}

// preparer is a Follower that notes its calls in the journal.
type preparer struct {
	listener
	j      *journal
	failed map[intent.EndpointID]error
}

func (p *preparer) Prepare(endpoints []intent.Endpoint, removed []intent.Key) map[intent.EndpointID]error {
	p.j.add("prepare %d endpoints %d removed", len(endpoints), len(removed))
	return p.failed
}

// allInForce is a policy driver that keeps the endpoints that it got, and reports all as in force.
type allInForce struct {
	fake
	has map[string]intent.Endpoint // by name
}

func (k *allInForce) Merge(b intent.Batch) {
	for _, e := range b.Endpoints {
		k.has[e.ID.Name] = e
	}
}

func (k *allInForce) Apply(ctx context.Context) (out []intent.Outcome, _ error) {
	if _, err := k.fake.Apply(ctx); err != nil {
		return nil, err
	}
	for _, e := range k.has {
		out = append(out, intent.Outcome{Key: e.ID, Reason: e.Closed})
	}
	return out, nil
}

// TestAnEndpointForWhichAFollowerIsNotReadyIsClosed: it is in the kernel, so that all else goes on, and is closed there, in error, and without a route;
// and is tried again until it is open.
func TestAnEndpointForWhichAFollowerIsNotReadyIsClosed(t *testing.T) {
	boom := errors.New("boom")
	a := intent.EndpointID{Namespace: "ns", Name: "a"}
	batch := func(name string) intent.Batch {
		return intent.Batch{Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "ns", Name: name}, Link: "cali-" + name}}, InSync: true}
	}
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft, f := &allInForce{fake: fake{name: "nft", j: j}, has: map[string]intent.Endpoint{}}, &preparer{j: j, failed: map[intent.EndpointID]error{a: boom}}
		fib := &forwarder{fake: fake{name: "fib", j: j}}
		run(t, Config{Policy: nft, Forwarding: []Driver{fib}, Followers: []Follower{f}, Resync: -1}, j, func(b *bench) {
			is := func(when string, shut, held bool) {
				t.Helper()
				synctest.Wait()
				if got := nft.has["a"].Closed; (got != "") != shut {
					t.Errorf("%s: closed is %q, want %v", when, got, shut)
				}
				if o := b.outcomes[a]; errors.Is(o.Err, boom) != held {
					t.Errorf("%s: the outcome is %+v, want an error: %v", when, o, held)
				}
				if fib.held("cali-a") != held || fib.held("cali-b") {
					t.Errorf("%s: held are a %v, b %v; want %v, false", when, fib.held("cali-a"), fib.held("cali-b"), held)
				}
			}
			b.batches <- batch("a")
			is("at once", true, true)
			b.batches <- batch("b")
			is("another comes", true, true)
			pass(time.Minute)
			is("a minute later", true, true)
			b.batches <- batch("a")
			is("it changes", true, true)
			nft.errs = []error{boom}
			b.batches <- batch("b")
			pass(time.Minute)
			is("the driver failed as a whole", true, true)
			f.failed = nil
			pass(time.Minute)
			is("they are ready", false, false)
			tries := len(j.lines)
			pass(time.Hour)
			if len(j.lines) != tries {
				t.Errorf("it is tried still: %q", j.lines[tries:])
			}
			f.failed = map[intent.EndpointID]error{a: boom}
			b.batches <- batch("a")
			is("again", true, true)
			b.batches <- intent.Batch{Removed: []intent.Key{a}}
			synctest.Wait()
			pass(time.Minute)
			tries = len(j.lines)
			if pass(time.Hour); len(j.lines) != tries {
				t.Errorf("it is gone, and tried still: %q", j.lines[tries:])
			}
		})
	})
}

func TestEndpointsAreAnnouncedBeforeEachTryToBringThemIntoForce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft := &fake{name: "nft", j: j, errs: []error{errors.New("boom")}}
		run(t, Config{Policy: nft, Followers: []Follower{&preparer{j: j}}, Resync: -1}, j, func(b *bench) {
			b.batches <- endpoint()
			pass(time.Minute)
			b.batches <- intent.Batch{}
			synctest.Wait()
			var got []string
			for _, line := range j.lines {
				if strings.HasPrefix(line, "prepare") || strings.HasPrefix(line, "nft apply") {
					got = append(got, line)
				}
			}
			want := []string{"prepare 1 endpoints 0 removed", "nft apply 1", "prepare 1 endpoints 0 removed", "nft apply 0", "nft apply 1"}
			if !slices.Equal(got, want) {
				t.Errorf("%q, want %q", got, want)
			}
		})
	})
}

// TestNothingIsInForceBeforeTheSourceIsInSync: until then, a policy driver leaves the table as an earlier agent left it.
func TestNothingIsInForceBeforeTheSourceIsInSync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft, f := &fake{name: "nft", j: j}, &preparer{j: j}
		run(t, Config{Policy: nft, Followers: []Follower{f}, Resync: -1}, j, func(b *bench) {
			early := endpoint()
			early.InSync = false
			b.batches <- early
			b.want(t, "nft resync", "nft apply 1")
			if len(f.got) > 0 || len(b.outcomes) > 0 {
				t.Errorf("before, followers get %q, and the outcomes are %v", f.got, b.outcomes)
			}
			nft.outcomes = endpointOutcome(nil, "")
			b.batches <- intent.Batch{InSync: true}
			b.want(t, "prepare 1 endpoints 0 removed", "nft apply 1")
			if o, reported := b.outcomes[endpointKey]; !reported || o.Err != nil || !slices.Equal(f.got, []string{"1 endpoints 0 removed"}) {
				t.Errorf("in sync, followers get %q, and the outcomes are %v", f.got, b.outcomes)
			}
		})
	})
}

// TestWhilePolicyFailsOthersGoAndStay: routes of what goes are withdrawn, what is in force stays open, and what is new waits.
func TestWhilePolicyFailsOthersGoAndStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &journal{}
		nft := &fake{name: "nft", j: j}
		fib := &forwarder{fake: fake{name: "fib", j: j}}
		run(t, Config{Policy: nft, Forwarding: []Driver{fib}, Resync: -1}, j, func(b *bench) {
			b.batches <- endpoint() // has cali1
			synctest.Wait()
			nft.errs = slices.Repeat([]error{errors.New("boom")}, 1000)
			b.batches <- intent.Batch{Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "ns", Name: "b"}, Link: "cali2"}}}
			pass(10 * time.Second)
			b.batches <- intent.Batch{}
			synctest.Wait()
			j.lines, fib.gates = nil, nil
			// Policy is not tried now, since it just failed.
			b.batches <- intent.Batch{Endpoints: []intent.Endpoint{{ID: intent.EndpointID{Namespace: "ns", Name: "c"}, Link: "cali3"}}}
			b.want(t, "fib withdraw", "fib apply 1")
			if want := []string{"ready=true held=false"}; !slices.Equal(fib.gates, want) {
				t.Errorf("the gate of what is in force is %v, want %v", fib.gates, want)
			}
			for _, link := range []string{"cali2", "cali3"} {
				if !fib.held(link) {
					t.Errorf("%s is open, and its policy is not in force", link)
				}
			}
		})
	})
}

// model is the slow, obvious way to merge batches.
type model struct {
	Sets      map[intent.SetID]map[intent.Member]bool
	Policies  map[intent.PolicyID]string
	Endpoints map[intent.EndpointID]string
	Host      bool
	InSync    bool
}

func newModel() model {
	return model{Sets: map[intent.SetID]map[intent.Member]bool{}, Policies: map[intent.PolicyID]string{}, Endpoints: map[intent.EndpointID]string{}}
}

func (m *model) merge(b intent.Batch) {
	for _, s := range b.IPSets {
		m.Sets[s.ID] = map[intent.Member]bool{}
		for _, x := range s.Members {
			m.Sets[s.ID][x] = true
		}
	}
	for _, d := range b.Members {
		for _, x := range d.Removed {
			delete(m.Sets[d.Set], x)
		}
		for _, x := range d.Added {
			m.Sets[d.Set][x] = true
		}
	}
	for _, p := range b.Policies {
		m.Policies[p.ID] = p.Tier
	}
	for _, e := range b.Endpoints {
		m.Endpoints[e.ID] = e.Link
	}
	m.Host, m.InSync = b.Host != nil || m.Host, m.InSync || b.InSync
	for _, k := range b.Removed {
		switch id := k.(type) {
		case intent.SetID:
			delete(m.Sets, id)
		case intent.PolicyID:
			delete(m.Policies, id)
		case intent.EndpointID:
			delete(m.Endpoints, id)
		}
	}
}

// randomBatch changes one thing, as calc could after what the model has.
func randomBatch(r *rand.Rand, m model) (b intent.Batch) {
	name := fmt.Sprint(r.IntN(4))
	member := func() []intent.Member {
		return []intent.Member{{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r.IntN(6))}), 32)}}
	}
	set, policy, endpoint := intent.SetID(name), intent.PolicyID{Kind: "NetworkPolicy", Namespace: "ns", Name: name}, intent.EndpointID{Namespace: "ns", Name: name}
	switch r.IntN(8) {
	case 0:
		b.IPSets = []intent.IPSet{{ID: set, Members: member()}}
	case 1, 2:
		if m.Sets[set] != nil {
			b.Members = []intent.MemberDelta{{Set: set, Added: member()}}
		}
	case 3:
		if m.Sets[set] != nil {
			b.Members = []intent.MemberDelta{{Set: set, Removed: member()}}
		}
	case 4:
		b.Policies = []intent.Policy{{ID: policy, Tier: fmt.Sprint(r.IntN(100))}}
	case 5:
		b.Endpoints = []intent.Endpoint{{ID: endpoint, Link: fmt.Sprint(r.IntN(100))}}
	case 6:
		b.Host, b.InSync = &intent.HostSettings{}, true
	default:
		b.Removed = []intent.Key{intent.SetID(name), policy, endpoint}[r.IntN(3):][:1]
	}
	return b
}

func TestABacklogIsWhatItsBatchesComeTo(t *testing.T) {
	r := seedtest.Rand(t)
	direct, late, log := newModel(), newModel(), newBacklog()
	for i := range 20000 {
		b := randomBatch(r, direct)
		direct.merge(b)
		log.add(b)
		if size := len(log.sets) + len(log.policies) + len(log.endpoints) + len(log.removed); size > 24 {
			t.Fatalf("step %d: it holds %d things of 12", i, size)
		}
		if r.IntN(10) > 0 {
			continue
		}
		late.merge(log.take())
		if !reflect.DeepEqual(direct, late) {
			t.Fatalf("step %d: got\n%+v, want\n%+v", i, late, direct)
		}
	}
}

func TestABacklogOfMembersThatComeAndGoIsBounded(t *testing.T) {
	r := seedtest.Rand(t)
	set := intent.SetID("s")
	start := intent.Batch{IPSets: []intent.IPSet{{ID: set}}}
	direct, late, log := newModel(), newModel(), newBacklog()
	direct.merge(start)
	late.merge(start)
	for i := range 20000 {
		change := intent.MemberDelta{Set: set}
		for n := range 6 {
			m := intent.Member{Prefix: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(n)}), 32)}
			switch r.IntN(3) {
			case 0:
				change.Added = append(change.Added, m)
			case 1:
				change.Removed = append(change.Removed, m)
			}
		}
		b := intent.Batch{Members: []intent.MemberDelta{change}}
		direct.merge(b)
		log.add(b)
		size := 0
		for _, d := range log.members[set].list {
			size += 1 + len(d.Added) + len(d.Removed)
		}
		if size > 1000 {
			t.Fatalf("step %d: it holds %d changes of 6 members", i, size)
		}
		if r.IntN(1000) > 0 {
			continue
		}
		late.merge(log.take())
		if !reflect.DeepEqual(direct, late) {
			t.Fatalf("step %d: got\n%+v, want\n%+v", i, late, direct)
		}
	}
}
