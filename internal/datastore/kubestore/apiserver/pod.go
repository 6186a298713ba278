package apiserver

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/translate"
)

// Pod is what Kubernetes says of a pod's addresses.
type Pod struct {
	HostNetwork bool // it has those of its host
	// Addrs are those of its status, with those that plugins noted: Calico's, and Multus for further networks. None: they are not known, as long as
	// there is no status of them, or if something cannot be read.
	Addrs []netip.Addr
}

// Pod returns what Kubernetes says of a pod; false: there is none of that name.
func (c *Client) Pod(ctx context.Context, namespace, name string) (Pod, bool, error) {
	raw, err := ask(ctx, c.client.Get().AbsPath("/api/v1/namespaces", namespace, "pods", name).SetHeader("Accept", mediaJSON))
	if errors.Is(err, datastore.ErrNotFound) {
		return Pod{}, false, nil
	}
	var p corev1.Pod
	if err == nil {
		err = json.Unmarshal(raw, &p)
	}
	if err != nil {
		return Pod{}, false, fmt.Errorf("read pod %s/%s: %w", namespace, name, err)
	}
	return Pod{p.Spec.HostNetwork, addrsOf(&p)}, true, nil
}

// networkStatus are annotations in which Multus notes what a pod has of further networks: that of now, and of old.
var networkStatus = []string{"k8s.v1.cni.cncf.io/network-status", "k8s.v1.cni.cncf.io/networks-status"}

func addrsOf(p *corev1.Pod) []netip.Addr {
	var texts []string
	for _, ip := range p.Status.PodIPs {
		texts = append(texts, ip.IP)
	}
	if len(texts) == 0 {
		return nil
	}
	if noted := cmp.Or(p.Annotations[translate.AnnotationIPs], p.Annotations[translate.AnnotationIP]); noted != "" {
		texts = append(texts, strings.Split(noted, ",")...)
	}
	for _, name := range networkStatus {
		var networks []struct{ IPs []string }
		if note := p.Annotations[name]; note != "" && json.Unmarshal([]byte(note), &networks) != nil {
			return nil
		}
		for _, n := range networks {
			texts = append(texts, n.IPs...)
		}
	}
	var out []netip.Addr
	for _, text := range texts {
		text, _, _ = strings.Cut(strings.TrimSpace(text), "/")
		a, err := netip.ParseAddr(text)
		if err != nil {
			return nil
		}
		if !slices.Contains(out, a) {
			out = append(out, a)
		}
	}
	return out
}
