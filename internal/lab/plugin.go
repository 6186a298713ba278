package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
)

// attachWorkloads makes the workloads as a container runtime does: a namespace, and a call of the CNI plugin.
func (l *Lab) attachWorkloads(ctx context.Context) error {
	for _, w := range l.Spec.Workloads {
		if err := l.attachWorkload(ctx, w); err != nil {
			return fmt.Errorf("workload %s: %w", w, err)
		}
	}
	return nil
}

func (l *Lab) attachWorkload(ctx context.Context, w Workload) error {
	ctx, cancel := context.WithTimeout(ctx, scenarioPatience)
	defer cancel()
	p, err := create(l.Spec.workloadNS(w))
	if err != nil {
		return err
	}
	defer p.close()
	if err := l.cni(ctx, "ADD", w); err != nil {
		return err
	}
	// What a pod's own object says comes from Kubernetes, and there is none here.
	spec := map[string]any{"profiles": w.profiles()}
	if w.PortName != "" {
		spec["ports"] = []map[string]any{{"name": w.PortName, "protocol": "TCP", "port": w.Port}}
	}
	patch, err := json.Marshal(map[string]any{"spec": spec})
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, l.Exe, "--etcd", l.Socket(), "--timeout", scenarioPatience.String(), "patch", "workloadendpoint", w.endpointName(), "-n", w.Namespace, "-p", string(patch))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("twill patch: %w\n%s", err, out)
	}
	return nil
}

// tryLater is CNI's code for what may succeed by itself: here, an agent that has just been started.
const tryLater = 11

// cni calls the plugin on a workload's host, as a runtime does.
func (l *Lab) cni(ctx context.Context, command string, w Workload) error {
	h, ok := l.Spec.host(w.Host)
	if !ok {
		return fmt.Errorf("no host %s", w.Host)
	}
	ns, err := netns.Open(l.Spec.hostNS(*h))
	if err != nil {
		return err
	}
	defer ns.Close()
	labels := []map[string]string{}
	for k, v := range w.Labels {
		labels = append(labels, map[string]string{"key": k, "value": v})
	}
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "lab", "type": "twill", "socket": l.AgentSocket(w.Host), "ipam": map[string]any{"type": "twill-ipam"},
		"args": map[string]any{"cni": map[string]any{"labels": labels, "ips": []netip.Addr{w.V4, w.V6}}},
	})
	if err != nil {
		return err
	}
	for {
		var out bytes.Buffer
		cmd := &exec.Cmd{Path: l.Exe, Args: []string{"twill"}, Stdin: bytes.NewReader(conf), Stdout: &out, Stderr: &out}
		cmd.Env = append(os.Environ(), "CNI_COMMAND="+command, "CNI_CONTAINERID=lab-"+w.Namespace+"-"+w.Name, "CNI_NETNS="+filepath.Join(netns.Dir, l.Spec.workloadNS(w)),
			"CNI_IFNAME="+uplink, "CNI_PATH="+filepath.Dir(l.Exe), "CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE="+w.Namespace+";K8S_POD_NAME="+w.Name)
		if err := ns.Start(cmd); err != nil {
			return err
		}
		err := cmd.Wait()
		var refused struct {
			Code int    `json:"code"`
			Msg  string `json:"msg"`
		}
		switch {
		case err == nil:
			return nil
		case json.Unmarshal(out.Bytes(), &refused) != nil:
			return fmt.Errorf("%w: %s", err, &out)
		case refused.Code != tryLater || ctx.Err() != nil:
			return errors.Join(errors.New(refused.Msg), ctx.Err())
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}
