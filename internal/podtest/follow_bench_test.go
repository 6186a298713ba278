package podtest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

const (
	port  = 8080
	every = 5 * time.Millisecond // a packet is sent, to see whether it passes
)

// follow has labels change at a rate, and says how late the agent is.
func (c *large) follow(l *local, rate int) {
	c.b.Helper()
	ctx, cancel := context.WithTimeout(c.b.Context(), *scaleFor)
	defer cancel()
	in, used, began, n := l.received.Load(), l.processor(), time.Now(), 0
	ended := make(chan struct{})
	go func() {
		defer close(ended) // also if a change fails, and the benchmark with it
		for piece := max(1, rate/20); ctx.Err() == nil; n += piece {
			<-time.After(time.Until(began.Add(time.Duration(n) * time.Second / time.Duration(rate))))
			c.change(piece)
		}
	}()
	all, agent := c.lags(ctx, l)
	<-ended
	took := time.Since(began).Seconds()
	late := [][]float64{all, agent}
	add := func(what string, v float64) { c.add(fmt.Sprintf("%d/%s", rate, what), v) }
	add("changes/s", float64(n)/took)
	add("samples", float64(len(late[0])))
	for i, of := range []string{"ms", "agent-ms"} {
		add(of+"-p50", quantile(late[i], 50))
		add(of+"-p99", quantile(late[i], 99))
		add(of+"-last", quantile(late[i][len(late[i])*3/4:], 50))
	}
	add("cpu-us/change", (l.processor()-used)*1e6/float64(n))
	add("B-in/change", float64(l.received.Load()-in)/float64(n))
}

// lags lets a pod in by its label and out again until ctx ends, and returns, each time, how many ms after the API server's answer its first packet passed,
// and how many after another watch had the change.
func (c *large) lags(ctx context.Context, l *local) (all, agent []float64) {
	c.b.Helper()
	g, seen := newGate(c.b, l), c.watch(l)
	defer g.close()
	for ctx.Err() == nil {
		passed := g.opens(func() { c.label(l, "a1") })
		all = append(all, ms(passed.Sub(g.done)))
		agent = append(agent, ms(passed.Sub(c.awaitSeen(seen, "a1"))))
		c.label(l, "a2")
		g.awaitShut()
	}
	return all, agent
}

// ms is a time in milliseconds, and nothing if it is negative: a watch may be faster than the answer.
func ms(d time.Duration) float64 { return max(0, float64(d.Microseconds())/1e3) }

// seen is a label of a pod, and when a watch had it.
type seen struct {
	app string
	at  time.Time
}

// watch follows the label of the local pod that has one given. It ends with the benchmark.
func (c *large) watch(l *local) <-chan seen {
	c.b.Helper()
	resp, err := c.s.Admin().Do(c.b.Context(), "GET", "/api/v1/namespaces/"+c.namespace(0)+"/pods?watch=true&fieldSelector=metadata.name%3Dother-"+l.name, "", nil)
	if err != nil {
		c.b.Fatal(err)
	}
	out := make(chan seen, 1<<16)
	go func() {
		defer resp.Body.Close()
		for events := json.NewDecoder(resp.Body); ; {
			var e struct {
				Object struct {
					Metadata struct{ Labels struct{ App string } }
				}
			}
			if events.Decode(&e) != nil {
				return
			}
			out <- seen{e.Object.Metadata.Labels.App, time.Now()}
		}
	}()
	return out
}

// awaitSeen waits until the watch has a label.
func (c *large) awaitSeen(events <-chan seen, app string) time.Time {
	c.b.Helper()
	late := time.After(2 * patience)
	for {
		select {
		case e := <-events:
			if e.app == app {
				return e.at
			}
		case <-late:
			c.b.Fatal("the API server does not send a change")
		}
	}
}

// label changes whom the local pod is like.
func (c *large) label(l *local, app string) {
	c.b.Helper()
	l.patch("/api/v1/namespaces/"+c.namespace(0)+"/pods/other-"+l.name, map[string]any{"metadata": map[string]any{"labels": map[string]any{"app": app}}})
}

// gate is where packets from one pod to another pass, or do not.
type gate struct {
	t       testing.TB
	from    *netnstest.NS
	to      netip.AddrPort
	server  *net.UDPConn
	arrived chan arrival
	flow    uint64
	done    time.Time // when what opens was given had been done
}

// arrival is the first packet of a flow.
type arrival struct {
	flow uint64
	at   time.Time
}

func newGate(t testing.TB, l *local) *gate {
	t.Helper()
	g := &gate{t: t, from: l.other.NS, to: netip.AddrPortFrom(l.web.addr, port), arrived: make(chan arrival, 1024)}
	var err error
	if g.server, err = l.web.ListenUDP(g.to); err != nil {
		t.Fatal(err)
	}
	go g.serve()
	return g
}

func (g *gate) close() { _ = g.server.Close() }

func (g *gate) serve() {
	var last uint64
	for buf := make([]byte, 8); ; {
		if _, _, err := g.server.ReadFromUDPAddrPort(buf); err != nil {
			return
		}
		if flow := binary.BigEndian.Uint64(buf); flow > last {
			last = flow
			g.arrived <- arrival{flow, time.Now()}
		}
	}
}

// opens sends packets of a new flow while do does what should let them pass, and returns when the first has.
func (g *gate) opens(do func()) time.Time {
	g.t.Helper()
	flow, stop := g.send()
	defer stop()
	do()
	g.done = time.Now()
	at, ok := g.await(flow, patience)
	if !ok {
		g.t.Fatal("no packet passes")
	}
	return at
}

// awaitShut returns when packets of new flows no longer pass.
func (g *gate) awaitShut() {
	g.t.Helper()
	for open := true; open; {
		flow, stop := g.send()
		_, open = g.await(flow, netnstest.Silence)
		stop()
		<-time.After(4 * every) // each that passed is a flow that the agent must look after
	}
}

// await waits for the first packet of a flow.
func (g *gate) await(flow uint64, within time.Duration) (time.Time, bool) {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case a := <-g.arrived:
			if a.flow == flow {
				return a.at, true
			}
		case <-timer.C:
			return time.Time{}, false
		}
	}
}

// send sends packets of a flow that conntrack does not know, until stop is called.
func (g *gate) send() (flow uint64, stop func()) {
	g.t.Helper()
	g.flow++
	conn, err := g.from.ListenUDP(netip.AddrPortFrom(netip.IPv4Unspecified(), 0))
	if err != nil {
		g.t.Fatal(err)
	}
	packet, end, ended := binary.BigEndian.AppendUint64(nil, g.flow), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			_, _ = conn.WriteToUDPAddrPort(packet, g.to) // one that is refused is one that did not pass
			select {
			case <-tick.C:
			case <-end:
				return
			}
		}
	}()
	return g.flow, func() {
		close(end)
		<-ended
		_ = conn.Close()
	}
}

// freeze stops the agent while labels change, and says how long it then takes until the last is in force.
func (c *large) freeze(l *local) {
	c.b.Helper()
	g, events := newGate(c.b, l), c.watch(l)
	defer g.close()
	before := loadOf(c.b, c.log)
	if err := l.process.Signal(syscall.SIGSTOP); err != nil {
		c.b.Fatal(err)
	}
	began := time.Now()
	c.change(*scaleBacklog)
	c.label(l, "a1")
	c.awaitSeen(events, "a1") // what the API server has it could send at once
	c.add("frozen-s", time.Since(began).Seconds())
	used := l.processor()
	at := g.opens(func() {
		if err := l.process.Signal(syscall.SIGCONT); err != nil {
			c.b.Fatal(err)
		}
	})
	took := at.Sub(g.done).Seconds()
	c.add("frozen-s-behind", took)
	c.add("frozen-changes/s", float64(*scaleBacklog)/took)
	c.add("frozen-cpu-us/change", (l.processor()-used)*1e6/float64(*scaleBacklog))
	c.add("frozen-lists", float64(loadOf(c.b, c.log).since(before).requests["list"]))
	c.label(l, "a2")
	g.awaitShut()
}

// replay lists all pods with the store alone, and has it read changes that were made since.
func (c *large) replay(l *local) {
	c.b.Helper()
	ctx, events := c.b.Context(), c.watch(l)
	store, err := kubestore.New(datastore.Config{Kubeconfig: c.s.Kubeconfig})
	if err != nil {
		c.b.Fatal(err)
	}
	defer store.Close()
	prefix := api.KeyPrefix(api.KindWorkloadEndpoint, "")
	began, used, n := time.Now(), ownProcessor(c.b), 0
	var at datastore.Position
	if err := store.Pages(ctx, prefix, func(piece datastore.Snapshot, _ bool) error {
		n, at = n+len(piece.Items), piece.Position
		return nil
	}); err != nil {
		c.b.Fatal(err)
	}
	c.add("kubestore-listed/s", float64(n)/time.Since(began).Seconds())
	c.add("kubestore-cpu-us/listed", float64((ownProcessor(c.b)-used).Microseconds())/float64(n))
	c.change(*scaleBacklog)
	c.label(l, "a1")
	c.awaitSeen(events, "a1")
	c.label(l, "a2")
	c.awaitSeen(events, "a2")
	began, used, n = time.Now(), ownProcessor(c.b), 0
	w, err := store.Watch(ctx, prefix, at)
	if errors.Is(err, datastore.ErrCompacted) {
		c.b.Logf("the API server keeps fewer than %d changes: %v", *scaleBacklog, err)
		return
	}
	if err != nil {
		c.b.Fatal(err)
	}
	defer w.Close()
	for n < *scaleBacklog {
		changes, err := w.Next(ctx)
		if err != nil {
			c.b.Fatal(err)
		}
		n += len(changes.Updates)
	}
	c.add("kubestore-events/s", float64(n)/time.Since(began).Seconds())
	c.add("kubestore-cpu-us/event", float64((ownProcessor(c.b)-used).Microseconds())/float64(n))
}

// ownProcessor is what this process has used of processors.
func ownProcessor(t testing.TB) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
