package clustercheck

import (
	"context"
	"fmt"
	"slices"
)

// policies makes NetworkPolicies one after the other, and looks when each is in force; and that kubelet reaches the pods all the while.
func (c *check) policies(ctx context.Context) error {
	if len(c.peers) == 0 {
		return nil
	}
	if err := c.before(ctx); err != nil {
		return err
	}
	for _, step := range []struct {
		doing  string
		make   object // a policy
		remove string
		asks   func(i int) []ask
	}{
		{
			doing: "a policy that denies", make: policy("deny", "b", []any{"Ingress"}, nil),
			asks: func(i int) []ask { return c.held("policy denies ingress", i, true, false) },
		},
		{
			doing: "a policy that allows by a label", make: policy("allow", "b", []any{"Ingress"}, []any{object{
				"from": []any{object{"podSelector": object{"matchLabels": object{mark: "a"}}}}, "ports": []any{object{"port": Port, "protocol": "TCP"}},
			}}),
			asks: func(i int) []ask {
				return append(c.held("policy allows by label", i, false, false), c.held("policy denies who has no label", i, true, true)...)
			},
		},
		{
			doing: "a policy that denies egress", make: policy("egress", "a", []any{"Egress"}, nil),
			asks: func(i int) []ask { return c.held("policy denies egress", i, true, false) },
		},
		{
			doing: "without that policy", remove: "egress",
			asks: func(i int) []ask { return c.held("policy is taken away", i, false, false) },
		},
	} {
		if c.stops(step.doing) {
			return nil
		}
		c.Now("trying " + step.doing)
		if step.make != nil {
			if err := c.API.Create(ctx, c.path("networkpolicies", ""), step.make); err != nil {
				return fmt.Errorf("make a NetworkPolicy: %w", err)
			}
		}
		if step.remove != "" {
			if err := c.API.Delete(ctx, c.path("networkpolicies", step.remove)); err != nil {
				return fmt.Errorf("delete a NetworkPolicy: %w", err)
			}
		}
		var asks []ask
		for i := range c.peers {
			asks = append(asks, step.asks(i)...)
		}
		if err := c.all(ctx, slices.DeleteFunc(asks, c.unknown)); err != nil {
			return err
		}
	}
	return c.stillReady(ctx)
}

// before asks without a policy on what the policies are tried: silence on a way that does not work says nothing of a policy.
func (c *check) before(ctx context.Context) error {
	c.Now("trying the same ways without policies")
	var asks []ask
	for i := range c.peers {
		asks = append(asks, c.held("", i, false, false)...)
		asks = append(asks, c.held("", i, false, true)...)
	}
	c.broken = map[way]bool{}
	for i, r := range c.ask(ctx, asks) {
		if r.Result != OK {
			c.broken[asks[i].way()] = true
		}
	}
	return ctx.Err()
}

// way is from a pod to an address.
type way struct{ pod, to string }

func (a ask) way() way { return way{a.pod, a.try.To} }

// unknown reports, and says in the results, that a policy's denial cannot be seen on a way.
func (c *check) unknown(a ask) bool {
	is := a.try.Silent && c.broken[a.way()]
	if is {
		c.results = append(c.results, Result{Test: a.test, From: a.from, To: a.to, Result: Skipped, Detail: fmt.Sprintf("pod %s does not reach %s without a policy", a.pod, a.try.To)})
	}
	return is
}

// held asks the pod of the next node, or of its own where there is one alone: from a, or from b, which is in no policy's list.
func (c *check) held(test string, i int, silent, fromB bool) (asks []ask) {
	p := c.peers[i]
	q, _ := c.next(i)
	from := p.a
	if fromB {
		if from = p.b; p.node == q.node {
			return nil // it would ask itself
		}
	}
	for _, addr := range q.b.addrs {
		a := ask{test: test + ", " + family(addr), from: p.node, to: q.node, pod: from.name, try: Try{To: "tcp://" + at(addr, Port), Silent: silent}, policy: true}
		if !silent {
			a.want = q.b.name
		}
		asks = append(asks, a)
	}
	return asks
}

func policy(name, role string, types, ingress []any) object {
	spec := object{"podSelector": object{"matchLabels": object{mark: role}}, "policyTypes": types}
	if ingress != nil {
		spec["ingress"] = ingress
	}
	return object{"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": object{"name": name}, "spec": spec}
}

// stillReady: kubelet's probes come from the node, and no policy is about them.
func (c *check) stillReady(ctx context.Context) error {
	var pods podList
	if err := c.API.Read(ctx, c.path("pods", ""), nil, &pods); err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	_, waiting := ready(pods)
	for _, p := range c.peers {
		r := Result{Test: "kubelet reaches pods under policies", From: p.node, To: p.node, Result: OK}
		for _, x := range []pod{p.a, p.b} {
			if why, is := waiting[x.name]; is {
				r.Result, r.Detail = Failed, fmt.Sprintf("pod %s is not Ready: %s", x.name, why)
			}
		}
		c.results = append(c.results, r)
	}
	return nil
}
