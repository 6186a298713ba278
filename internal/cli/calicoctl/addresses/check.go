// Package addresses is calicoctl's check and release of addresses.
//
// In: a store, and files that a check wrote, ours or calicoctl's. Out: calicoctl's lines; a report; addresses and handles that are free.
//
// A check counts as leaked what is proven (decision 095). A release takes from reports what all of them hold leaked, in whatever way that was
// concluded, and looks again: what somebody has by now, or is too young for anybody to be seen to have it, stays.
package addresses

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/ipam/report"
)

// Checking says what a check prints and writes.
type Checking struct {
	All      bool   // each address
	Problems bool   // each problem
	File     string // where the report goes; empty: nowhere
	Version  string // of this program
	Pod      AskPod
}

// AskPod asks Kubernetes for a pod, and whether there is one of that name; nil: it is not asked. What upstream's plugin gave to a pod is proven to be leaked by its
// answer alone.
type AskPod func(ctx context.Context, namespace, name string) (apiserver.Pod, bool, error)

// PodsOf is how to ask Kubernetes, if its API is the datastore.
func PodsOf(c *conn.Connection) AskPod {
	if is, err := c.Kubernetes(); err != nil || !is {
		return nil // an error is that of the command, too
	}
	cfg, err := c.Config()
	if err != nil {
		return nil
	}
	client, err := apiserver.New(cfg)
	if err != nil {
		return func(context.Context, string, string) (apiserver.Pod, bool, error) { return apiserver.Pod{}, false, err }
	}
	return client.Pod
}

// says asks once for each pod, and not again after an error, which it prints. Of nodes that there are not nothing is known.
func (ask AskPod) says(ctx context.Context, w io.Writer, v *ipam.Survey) func(node, namespace, pod string) ipam.PodSays {
	if ask == nil {
		return nil
	}
	var failed error
	known := map[string]ipam.PodSays{}
	return func(node, namespace, pod string) ipam.PodSays {
		name := namespace + "/" + pod
		if !v.HasNode(node) {
			return ipam.PodSays{}
		}
		says, asked := known[name]
		if !asked && failed == nil {
			p, there, err := ask(ctx, namespace, pod)
			if failed = err; err != nil {
				fmt.Fprintf(w, "Kubernetes does not say which pods it has, and what was given to them counts as in use: %v\n", err)
				return says
			}
			says = ipam.PodSays{None: !there, HostNetwork: p.HostNetwork, Addrs: p.Addrs}
			known[name] = says
		}
		return says
	}
}

// Check prints what calicoctl prints of a check, and writes its report. Problems are no error.
func Check(ctx context.Context, w io.Writer, s datastore.Store, o Checking) error {
	cluster, err := report.ClusterOf(ctx, s)
	if err != nil {
		return err
	}
	v, err := ipam.New(s, ipam.Config{}).ReadSurvey(ctx)
	if err != nil {
		return err
	}
	now := time.Now()
	found := v.Check(ipam.CheckOptions{Now: now, Grace: report.Grace, Pod: o.Pod.says(ctx, w, v)})
	wording.Check(w, wording.Checked{Survey: v, Found: found, Records: v.Records(found, now)}, o.All, o.All || o.Problems)
	if o.File == "" {
		return nil
	}
	text, err := json.MarshalIndent(report.Make(v, found, cluster, o.Version, now), "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(o.File, append(text, '\n'), 0o600)
}
