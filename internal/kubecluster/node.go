package kubecluster

import (
	"context"
	enc "encoding/base64"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/internal/image"
)

func base64(b []byte) string { return enc.StdEncoding.EncodeToString(b) }

// Names of the images.
const (
	TwillImage = "localhost/twill:" + imageTag
	ProbeImage = "localhost/probe:" + imageTag // of pods' sandboxes, too
)

// makeImages packs what nodes run. No registry has a part in it.
func (c *Cluster) makeImages(context.Context) error {
	twill, err := image.Twill(c.Twill, goarch, imageTag, time.Unix(0, 0))
	if err != nil {
		return err
	}
	program, err := os.ReadFile(c.Probe)
	if err != nil {
		return err
	}
	probe := image.Config{
		Name: "probe", Version: imageTag, Arch: goarch, Time: time.Unix(0, 0), Entrypoint: []string{"/probe"},
		Files: []image.File{{Name: "probe", Mode: 0o755, Content: program}, {Name: "tmp/", Mode: 0o1777}},
	}
	twill.Plain, probe.Plain = true, true
	for _, i := range []image.Config{twill, probe} {
		archive, err := i.Archive()
		if err != nil {
			return err
		}
		if err := os.WriteFile(c.imageFile(i.Name), archive, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) imageFile(name string) string { return c.in(name + ".tar") }

// Where a node has its configuration.
const (
	etcKubernetes = "/etc/kubernetes"
	socket        = "/run/containerd/containerd.sock"
)

// startNodes starts each node, and gives it the images.
func (c *Cluster) startNodes(ctx context.Context) error {
	if err := c.Apply(ctx, kubeletAccess); err != nil {
		return err
	}
	g, ctx := errgroup.WithContext(ctx)
	for n := 1; n <= c.Workers; n++ {
		if err := c.startNode(n); err != nil {
			return fmt.Errorf("node %s: %w", worker(n), err)
		}
		g.Go(func() error { return c.importImages(ctx, worker(n)) })
	}
	return g.Wait()
}

func (c *Cluster) startNode(n int) error {
	name := worker(n)
	etc := c.in(name, "up", etcKubernetes)
	if err := os.MkdirAll(etc, 0o755); err != nil {
		return err
	}
	ca, err := os.ReadFile(c.in("certs", "ca.crt"))
	if err != nil {
		return err
	}
	toAPI, err := os.ReadFile(c.in(name + ".kubeconfig"))
	if err != nil {
		return err
	}
	ofProxy, err := os.ReadFile(c.in(proxy + ".kubeconfig"))
	if err != nil {
		return err
	}
	for file, content := range map[string][]byte{
		"ca.crt": ca, "kubelet.kubeconfig": toAPI, "proxy.kubeconfig": ofProxy,
		"containerd.toml": []byte(containerdConfig), "kubelet.yaml": []byte(kubeletConfig), "proxy.yaml": fmt.Appendf(nil, proxyConfig, podRange),
	} {
		if err := os.WriteFile(filepath.Join(etc, file), content, 0o600); err != nil {
			return err
		}
	}
	return c.startMachine(machine{Name: name, Node: true, Services: []service{
		{"containerd", []string{"/usr/bin/containerd", "--config", etcKubernetes + "/containerd.toml"}},
		{"kubelet", []string{
			c.nodes.Path("kubelet"), "--config=" + etcKubernetes + "/kubelet.yaml", "--kubeconfig=" + etcKubernetes + "/kubelet.kubeconfig",
			"--hostname-override=" + name, "--node-ip=" + address(n).String(),
		}},
		{"kube-proxy", []string{c.nodes.Path("kube-proxy"), "--config=" + etcKubernetes + "/proxy.yaml", "--hostname-override=" + name}},
	}})
}

// importImages waits until a node's containerd answers, and gives it the images.
func (c *Cluster) importImages(ctx context.Context, name string) error {
	err := await(ctx, func(ctx context.Context) error {
		if _, err := os.Stat(c.in(name, socket)); err != nil {
			return err
		}
		return c.ctr(ctx, name, "version")
	})
	for _, image := range []string{"probe", "twill"} {
		if err == nil {
			err = c.ctr(ctx, name, "images", "import", c.imageFile(image))
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// ctr asks a node's containerd.
func (c *Cluster) ctr(ctx context.Context, node string, args ...string) error {
	_, err := run(exec.CommandContext(ctx, "ctr", append([]string{"--address", c.in(node, socket), "--namespace", "k8s.io"}, args...)...), "")
	return err
}

// kubeletAccess lets the API server ask kubelets.
const kubeletAccess = `apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: ` + toKubelets + `}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:kubelet-api-admin"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: ` + toKubelets + `}]
`

// containerdConfig: a process without CAP_SYS_RESOURCE cannot lower the oom_score_adj, and runc then fails.
const containerdConfig = `version = 2
root = "/var/lib/containerd"
state = "/run/containerd"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs"]
[grpc]
  address = "` + socket + `"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + ProbeImage + `"
  restrict_oom_score_adj = true
  stream_server_address = "127.0.0.1"
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
`

const kubeletConfig = `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: ` + etcKubernetes + `/ca.crt}}
authorization: {mode: Webhook}
containerRuntimeEndpoint: unix://` + socket + `
cgroupDriver: cgroupfs
failCgroupV1: false
failSwapOn: false
localStorageCapacityIsolation: false
clusterDNS: [10.96.0.10]
clusterDomain: cluster.local
volumePluginDir: /var/lib/kubelet/volume-plugins
evictionHard: {memory.available: "100Mi", nodefs.available: "1%", imagefs.available: "1%"}
imageGCHighThresholdPercent: 100
nodeStatusUpdateFrequency: 5s
shutdownGracePeriod: 0s
`

// proxyConfig leaves what is the whole machine's as it is.
const proxyConfig = `apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
clientConnection: {kubeconfig: ` + etcKubernetes + `/proxy.kubeconfig}
mode: nftables
clusterCIDR: %q
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
`
