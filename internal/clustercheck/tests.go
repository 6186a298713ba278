package clustercheck

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"
)

// ask is a try in a pod, and whose result it is.
type ask struct {
	test     string
	from, to string // nodes, or what else is reached
	pod      string
	try      Try
	want     string // of the answer; empty: any
	found    bool   // the answer is of interest
	policy   bool   // what is of interest is when it was in force
}

// atOnce is how many commands run in pods at the same time.
const atOnce = 8

// all asks everything, and keeps the results in the order of the questions.
func (c *check) all(ctx context.Context, asks []ask) error {
	c.results = append(c.results, c.ask(ctx, asks)...)
	return ctx.Err()
}

// ask is the result of each question.
func (c *check) ask(ctx context.Context, asks []ask) []Result {
	out := make([]Result, len(asks))
	var group sync.WaitGroup
	slots := make(chan struct{}, atOnce)
	for i, a := range asks {
		a.try.Within = c.Settle
		group.Go(func() {
			slots <- struct{}{}
			if out[i] = c.one(ctx, a); out[i].Result == Failed {
				out[i].Why = c.why(a)
			}
			<-slots
		})
	}
	group.Wait()
	return out
}

func (c *check) one(ctx context.Context, a ask) Result {
	r := Result{Test: a.test, From: a.from, To: a.to, Result: Failed}
	command, err := a.try.command()
	if err != nil {
		r.Detail = err.Error()
		return r
	}
	ctx, cancel := context.WithTimeout(ctx, a.try.Within+patience+20*time.Second) // of which the latter is for whoever runs it
	defer cancel()
	raw, err := c.API.Exec(ctx, c.namespace, a.pod, command)
	if err != nil {
		r.Detail = err.Error()
		return r
	}
	var done Tried
	if err := json.Unmarshal(raw, &done); err != nil {
		r.Detail = fmt.Sprintf("pod %s said %q", a.pod, raw)
		return r
	}
	switch {
	case done.As && a.want != "" && done.Answer != a.want:
		r.Detail = fmt.Sprintf("%s answered, and not %s", done.Answer, a.want)
	case done.As:
		r.Result, r.Took = OK, done.Took
		if a.policy {
			r.Took = done.After
		}
		if a.found {
			r.Detail = done.Answer
		}
	case a.try.Silent:
		r.Detail = fmt.Sprintf("%s is answered still, %s after the policy was made", a.try.To, done.After.Round(time.Second))
	default:
		r.Detail = done.Error
	}
	return r
}

// why is the call that says what policy does to a try, while the pods are there; empty: they will not be, or policy is asked of other addresses, as
// behind a service.
func (c *check) why(a ask) string {
	scheme, at, _ := strings.Cut(a.try.To, "://")
	protocol := map[string]string{"tcp": "tcp", "open": "tcp", "udp": "udp", "whole": "udp"}[scheme]
	to, err := netip.ParseAddrPort(at)
	if !c.Keep || protocol == "" || err != nil {
		return ""
	}
	for _, p := range c.peers {
		end := ""
		switch {
		case slices.Contains(p.a.addrs, to.Addr()):
			end = c.namespace + "/" + p.a.name
		case slices.Contains(p.b.addrs, to.Addr()):
			end = c.namespace + "/" + p.b.name
		case p.host == to.Addr():
			end = p.host.String()
		}
		if end != "" {
			return fmt.Sprintf("twill why %s/%s %s %s/%d", c.namespace, a.pod, end, protocol, to.Port())
		}
	}
	return ""
}

// paths are the ways that nobody has forbidden.
func (c *check) paths(ctx context.Context) error {
	c.Now("trying ways between pods, services, names and nodes")
	var asks []ask
	for i, p := range c.peers {
		asks = append(asks, to("pod to pod on its node", p, p)...)
		if q, is := c.next(i); is {
			asks = append(asks, to("pod to pod on another node", p, q)...)
			for _, addr := range q.b.addrs {
				asks = append(asks, ask{test: "packets of full size to another node, " + family(addr), from: p.node, to: q.node, pod: p.a.name, try: Try{To: "whole://" + at(addr, Port)}, found: true})
			}
			asks = append(asks, c.toNode("pod to another node", p, q)...)
		}
		asks = append(asks, c.toNode("pod to its own node", p, p)...)
	}
	if len(c.peers) == 1 {
		c.skip("pod to pod on another node", "the cluster has one node that takes part")
	}
	more, err := c.services(ctx)
	if err != nil {
		return err
	}
	return c.all(ctx, append(asks, more...))
}

// kubelet's port for the API server, which each node has.
const kubelet = 10250

// toNode asks for what each node has.
func (c *check) toNode(test string, p, q peer) []ask {
	if !q.host.IsValid() {
		c.skip(test, q.node+" has no InternalIP")
		return nil
	}
	return []ask{{test: test, from: p.node, to: q.node, pod: p.a.name, try: Try{To: "open://" + at(q.host, kubelet)}}}
}

// to asks for another's pod by each protocol and family.
func to(test string, p, q peer) (asks []ask) {
	for _, addr := range q.b.addrs {
		asks = append(asks,
			ask{test: test + ", TCP " + family(addr), from: p.node, to: q.node, pod: p.a.name, try: Try{To: "tcp://" + at(addr, Port)}, want: q.b.name},
			ask{test: test + ", UDP " + family(addr), from: p.node, to: q.node, pod: p.a.name, try: Try{To: "udp://" + at(addr, Port)}, want: "twill"},
		)
	}
	return asks
}

// services are what pods reach by other addresses than those of pods and nodes.
func (c *check) services(ctx context.Context) (asks []ask, err error) {
	service, err := c.clusterIP(ctx, c.path("services", "b"))
	if err != nil {
		return nil, err
	}
	server, err := c.clusterIP(ctx, "/api/v1/namespaces/default/services/kubernetes")
	if err != nil {
		return nil, err
	}
	names, err := c.clusterIP(ctx, "/api/v1/namespaces/kube-system/services/kube-dns")
	if err != nil && !c.API.Gone(err) {
		return nil, err
	}
	for _, p := range c.peers {
		asks = append(asks,
			ask{test: "pod to a service", from: p.node, to: service, pod: p.a.name, try: Try{To: "tcp://" + service + ":80"}},
			ask{test: "pod to the API server by its service", from: p.node, to: server, pod: p.a.name, try: Try{To: "open://" + server + ":443"}},
		)
		if names != "" {
			asks = append(asks, ask{test: "names of services", from: p.node, to: names, pod: p.a.name, try: Try{To: "dns:kubernetes.default.svc"}, found: true})
		}
		if c.Egress != "" {
			asks = append(asks, ask{test: "pod to the outside", from: p.node, to: c.Egress, pod: p.a.name, try: Try{To: "open://" + c.Egress}})
		}
	}
	if names == "" {
		c.skip("names of services", "kube-system has no Service kube-dns")
	}
	if c.Egress == "" {
		c.skip("pod to the outside", "name an address that pods should reach (--egress)")
	}
	return asks, nil
}

func (c *check) clusterIP(ctx context.Context, path string) (string, error) {
	var s struct{ Spec struct{ ClusterIP string } }
	if err := c.API.Read(ctx, path, nil, &s); err != nil {
		return "", fmt.Errorf("read service: %w", err)
	}
	addr, err := netip.ParseAddr(s.Spec.ClusterIP)
	if err != nil {
		return "", fmt.Errorf("%s has no address of the cluster: %q", path, s.Spec.ClusterIP)
	}
	if addr.Is6() {
		return "[" + addr.String() + "]", nil
	}
	return addr.String(), nil
}

func (c *check) skip(test, why string) {
	c.results = append(c.results, Result{Test: test, Result: Skipped, Detail: why})
}
