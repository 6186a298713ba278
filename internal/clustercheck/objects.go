package clustercheck

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

type object = map[string]any

// mark is the label of all that a check makes, and says which pods ask and which are asked.
const mark = "twill.net/check"

func (c *check) path(kind, name string) string {
	group := "/api/v1"
	if kind == "networkpolicies" {
		group = "/apis/networking.k8s.io/v1"
	}
	return strings.TrimSuffix(fmt.Sprintf("%s/namespaces/%s/%s/%s", group, c.namespace, kind, name), "/")
}

// start makes the namespace, the pods and a service, and waits until kubelet's own probes of the pods were answered.
func (c *check) start(ctx context.Context) error {
	c.Now("starting pods in the namespace " + c.namespace)
	if err := c.API.Create(ctx, "/api/v1/namespaces", object{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": object{"name": c.namespace, "labels": object{mark: "", "pod-security.kubernetes.io/enforce": "restricted"}},
	}); err != nil {
		return fmt.Errorf("make namespace %s: %w", c.namespace, err)
	}
	for i := range c.peers {
		p := &c.peers[i]
		p.a.name, p.b.name = fmt.Sprintf("a-%d", i), fmt.Sprintf("b-%d", i)
		for role, name := range map[string]string{"a": p.a.name, "b": p.b.name} {
			if err := c.API.Create(ctx, c.path("pods", ""), c.pod(name, role, p.node)); err != nil {
				return fmt.Errorf("make pod %s: %w", name, err)
			}
		}
	}
	if err := c.API.Create(ctx, c.path("services", ""), object{
		"apiVersion": "v1", "kind": "Service", "metadata": object{"name": "b"},
		"spec": object{"selector": object{mark: "b"}, "ports": []any{object{"port": 80, "targetPort": Port}}},
	}); err != nil {
		return fmt.Errorf("make service: %w", err)
	}
	return c.awaitPods(ctx)
}

func (c *check) pod(name, role, node string) object {
	return object{
		"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": name, "labels": object{mark: role}},
		"spec": object{
			"nodeName": node, "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
			"tolerations":     []any{object{"operator": "Exists"}},
			"securityContext": object{"runAsNonRoot": true, "runAsUser": 65534, "seccompProfile": object{"type": "RuntimeDefault"}},
			"containers": []any{object{
				"name": "probe", "image": c.Image, "command": []any{"/usr/bin/twill", "check", "serve"},
				"env":             []any{object{"name": "POD", "valueFrom": object{"fieldRef": object{"fieldPath": "metadata.name"}}}},
				"ports":           []any{object{"containerPort": Port}},
				"readinessProbe":  object{"httpGet": object{"path": "/", "port": Port}, "periodSeconds": 1, "timeoutSeconds": 2},
				"securityContext": object{"allowPrivilegeEscalation": false, "capabilities": object{"drop": []any{"ALL"}}},
			}},
		},
	}
}

type podList struct {
	Items []struct {
		Metadata struct{ Name string }
		Spec     struct{ NodeName string }
		Status   struct {
			Phase, Reason, Message string
			Conditions             []struct{ Type, Status, Message string }
			PodIPs                 []struct{ IP string }
			ContainerStatuses      []struct {
				State struct {
					Waiting struct{ Reason, Message string }
				}
			}
		}
	}
}

// awaitPods waits until all are Ready, and keeps their addresses. Those that do not become it are results; without one pair that is there is nothing to try.
func (c *check) awaitPods(ctx context.Context) error {
	began := time.Now()
	for {
		var pods podList
		if err := c.API.Read(ctx, c.path("pods", ""), nil, &pods); err != nil {
			return fmt.Errorf("list pods: %w", err)
		}
		addrs, waiting := ready(pods)
		if len(waiting) == 0 && len(addrs) == 2*len(c.peers) || time.Since(began) > c.Start {
			return c.keepReady(addrs, waiting, time.Since(began))
		}
		c.Now(fmt.Sprintf("starting pods: %d of %d are Ready", len(addrs), 2*len(c.peers)))
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// ready is the addresses of pods that are Ready, and of the others what they wait for, by their names.
func ready(pods podList) (addrs map[string][]netip.Addr, waiting map[string]string) {
	addrs, waiting = map[string][]netip.Addr{}, map[string]string{}
	for _, p := range pods.Items {
		is, why := false, strings.TrimSpace(p.Status.Reason+" "+p.Status.Message)
		for _, x := range p.Status.Conditions {
			if x.Type == "Ready" {
				is = x.Status == "True"
				why = strings.TrimSpace(why + " " + x.Message)
			}
		}
		for _, s := range p.Status.ContainerStatuses {
			why = strings.TrimSpace(s.State.Waiting.Reason + " " + s.State.Waiting.Message + " " + why)
		}
		if !is {
			waiting[p.Metadata.Name] = why
			continue
		}
		for _, ip := range p.Status.PodIPs {
			if a, err := netip.ParseAddr(ip.IP); err == nil {
				addrs[p.Metadata.Name] = append(addrs[p.Metadata.Name], a)
			}
		}
	}
	return addrs, waiting
}

func (c *check) keepReady(addrs map[string][]netip.Addr, waiting map[string]string, took time.Duration) error {
	var there []peer
	for _, p := range c.peers {
		p.a.addrs, p.b.addrs = addrs[p.a.name], addrs[p.b.name]
		r := Result{Test: "pods start, and their node reaches them", From: p.node, To: p.node, Result: OK, Took: took}
		for _, x := range []pod{p.a, p.b} {
			if len(x.addrs) == 0 {
				r.Result, r.Detail = Failed, fmt.Sprintf("pod %s is not Ready after %s: %s", x.name, c.Start, waiting[x.name])
			}
		}
		if r.Result == OK {
			there = append(there, p)
		}
		c.results = append(c.results, r)
	}
	c.peers = there
	return nil
}

// remove deletes the namespace, and waits until it is gone.
func (c *check) remove(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	path := "/api/v1/namespaces/" + c.namespace
	if err := c.API.Delete(ctx, path); err != nil {
		return fmt.Errorf("delete namespace %s, which is left: %w", c.namespace, err)
	}
	for {
		err := c.API.Read(ctx, path, nil, &object{})
		if err != nil && c.API.Gone(err) {
			return nil
		}
		if err := pause(ctx, 300*time.Millisecond); err != nil {
			return fmt.Errorf("the namespace %s is being deleted, and is not gone yet", c.namespace)
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}
