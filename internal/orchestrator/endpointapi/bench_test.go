package endpointapi

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/resources"
)

// bench is a Core in virtual time, and what it has done since that was looked at.
type bench struct {
	t    *testing.T
	c    *Core
	now  time.Time
	next time.Time
	jobs map[string]*Job
	log  []string
	keys []uint64 // numbers of questions, in the order in which they were asked
}

// start returns a bench whose agent knows the host's interfaces, an uplink among them, and a datastore that holds some endpoints.
func start(t *testing.T, has ...*api.WorkloadEndpoint) *bench {
	t.Helper()
	b := &bench{t: t, c: New("h1", "v1"), now: time.Unix(1e9, 0), jobs: map[string]*Job{}}
	b.c.Configure([]string{"tap", "cali"})
	up := ifmon.Change{Link: ifmon.Link{Index: 1, Name: "eth0", Addrs: []netip.Prefix{netip.MustParsePrefix("192.0.2.1/24")}}}
	b.c.Links(b.now, []ifmon.Change{up})
	b.stored(has...)
	return b
}

func (b *bench) stored(has ...*api.WorkloadEndpoint) {
	b.t.Helper()
	var us []api.Update
	for _, w := range has {
		u, err := resources.Stored(w)
		if err != nil {
			b.t.Fatal(err)
		}
		us = append(us, u)
	}
	b.c.Stored(b.now, us, true)
	b.step()
}

// step does what is due.
func (b *bench) step() {
	var do []Action
	do, b.next = b.c.Step(b.now)
	for _, a := range do {
		switch {
		case a.Close != nil:
			b.logf("%d closed: %s", a.Close.Conn, a.Close.Reason)
		case a.Cancel != nil:
			b.logf("cancel %s", nameOfJob(a.Cancel))
		case a.Job != nil && a.Job.Group != "":
			b.jobs[nameOfJob(a.Job)] = a.Job
			what := "write "
			if a.Job.Policy == nil {
				what = "delete at " + a.Job.Node + " "
			}
			b.logf("%s%s", what, nameOfJob(a.Job))
		case a.Job != nil:
			b.jobs[a.Job.Link] = a.Job
			line := "write " + a.Job.Link
			if a.Job.Want == nil {
				line = "delete of " + a.Job.Link
			} else {
				line += " " + nameOf(a.Job.Want) + " " + strings.Join(a.Job.Want.Spec.IPNetworks, ",")
			}
			if len(a.Job.Remove) > 0 && a.Job.Want != nil {
				line += fmt.Sprintf(" and delete %d", len(a.Job.Remove))
			}
			b.logf("%s", line)
		default:
			b.message(a.Send)
		}
	}
}

func (b *bench) message(s *Send) {
	switch m := s.Say.GetSay().(type) {
	case *endpointpb.FromAgent_Ask:
		b.keys = append(b.keys, m.Ask.GetNumber())
		line := fmt.Sprintf("%d asked %s", s.To, m.Ask.GetInterface().GetName())
		if m.Ask.GetEndpoint() != "" {
			line += " has " + m.Ask.GetEndpoint()
		}
		b.logf("%s", line)
	case *endpointpb.FromAgent_Group:
		e := m.Group
		b.logf("%d %s %s", s.To, strings.ReplaceAll(strings.ToLower(e.GetKind().String()), "_", " "), strings.TrimSpace(e.GetNamespace()+"/"+e.GetName()+" "+e.GetReason()))
	case *endpointpb.FromAgent_Event:
		e := m.Event
		b.logf("%d %s %s", s.To, strings.ToLower(e.GetKind().String()), strings.TrimSpace(e.GetInterface()+" "+e.GetReason()))
	}
}

// nameOfJob is that of its interface, or of its group.
func nameOfJob(j *Job) string {
	if j.Group != "" {
		return strings.TrimPrefix(j.Group, api.KeyPrefix(api.KindNetworkPolicy, ""))
	}
	return j.Link
}

func (b *bench) logf(format string, args ...any) { b.log = append(b.log, fmt.Sprintf(format, args...)) }

// wait lets time pass, in steps in which something is due.
func (b *bench) wait(d time.Duration) {
	for end := b.now.Add(d); ; {
		if b.next.IsZero() || b.next.After(end) {
			b.now = end
			b.step()
			return
		}
		b.now = b.next
		b.step()
		if b.next.Equal(b.now) {
			b.t.Fatalf("something is due and not done; so far %q", b.log)
		}
	}
}

func (b *bench) link(name string, index int) {
	b.c.Links(b.now, []ifmon.Change{{Link: ifmon.Link{Index: index, Name: name}}})
	b.step()
}

func (b *bench) unlink(name string) {
	b.c.Links(b.now, []ifmon.Change{{Link: ifmon.Link{Name: name}, Gone: true}})
	b.step()
}

func (b *bench) register(conn Conn, name string) {
	b.t.Helper()
	if err := b.c.Register(b.now, conn, &endpointpb.Register{Name: name, Orchestrator: "demo"}); err != nil {
		b.t.Fatal(err)
	}
	b.step()
}

// answer answers the question of a number, of those that were asked so far; nil: not mine.
func (b *bench) answer(conn Conn, question int, e *endpointpb.Endpoint) {
	b.c.Answer(b.now, conn, &endpointpb.Answer{Number: b.keys[question], Endpoint: e})
	b.step()
}

func (b *bench) hand(conn Conn, name string, e *endpointpb.Endpoint) {
	b.c.HandOver(b.now, conn, &endpointpb.HandOver{Interface: name, Endpoint: e})
	b.step()
}

func (b *bench) withdraw(conn Conn, name string) {
	b.c.Withdraw(b.now, conn, name)
	b.step()
}

// done ends the job of an interface.
func (b *bench) done(name string, err error) {
	b.t.Helper()
	j := b.jobs[name]
	if j == nil {
		b.t.Fatalf("no job of %s; so far %q", name, b.log)
	}
	delete(b.jobs, name)
	b.c.Done(b.now, j, err)
	b.step()
}

// want compares what was done since the last call.
func (b *bench) want(lines ...string) {
	b.t.Helper()
	if !slices.Equal(b.log, lines) {
		b.t.Errorf("done was\n  %s\nwant\n  %s", strings.Join(b.log, "\n  "), strings.Join(lines, "\n  "))
	}
	b.log = nil
}

func vm(workload string, addresses ...string) *endpointpb.Endpoint {
	return &endpointpb.Endpoint{Workload: workload, Endpoint: "eth0", Addresses: addresses}
}

// others is an endpoint that somebody else wrote.
func others(link, address string) *api.WorkloadEndpoint {
	p := &plugin{name: "", orchestrator: "others"}
	w, err := workload("h1", p, link, vm("x", address))
	if err != nil {
		panic(err)
	}
	w.Metadata.Annotations = nil
	return w
}

// of is an endpoint that a plugin had written.
func of(name, link, workloadName, address string) *api.WorkloadEndpoint {
	w, err := workload("h1", &plugin{name: name, orchestrator: "demo"}, link, vm(workloadName, address))
	if err != nil {
		panic(err)
	}
	return w
}
