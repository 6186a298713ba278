package crds

import (
	"fmt"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// NodeSet says what of the DaemonSet of nodes is other than by default.
type NodeSet struct {
	Namespace string
	Image     string      // has twill and, beside it, twill-cni
	Group     form.Group  // empty: they find it out
	Backend   string      // calico_backend: bird, vxlan or none
	MTU       int         // veth_mtu: of all links; 0: they find it out
	Network   string      // cni_network_config; empty: Twill's own
	Pools     [][2]string // variables that make the first pools, such as CALICO_IPV4POOL_CIDR, with their values
	PodLinks  string      // what names of pods' interfaces begin with, where another plugin attaches them, and ours is not installed; empty: ours does
}

// NodeConfig is the name of the ConfigMap that the DaemonSet reads, by upstream's keys.
const NodeConfig = "twill-config"

// healthPort is where an agent says that it lives and is ready.
const healthPort = 9099

// paths are those of the host that a node needs, by the names of their volumes.
var paths = []struct{ name, at string }{
	{"run", "/run/twill"}, {"data", "/var/lib/twill"}, {"cni-bin", "/opt/cni/bin"}, {"cni-net", "/etc/cni/net.d"},
}

// Uninstaller takes the place of the DaemonSet of nodes: on each node, its pod begins when that of `twill node` has ended, and takes out what
// that put there, and the CNI plugin before it.
func Uninstaller(namespace, image string) map[string]any {
	s := NodeSet{Namespace: namespace, Image: image}
	cleanup := func(name string, more ...any) map[string]any {
		return map[string]any{
			"name": name, "image": image, "imagePullPolicy": "IfNotPresent", "command": append([]any{"twill", "node", "cleanup"}, more...),
			"securityContext": map[string]any{"privileged": true}, "volumeMounts": []any{mounted("run", "/run/twill"), mounted("data", "/var/lib/twill")},
		}
	}
	plugin := s.installer("uninstall")
	plugin["name"] = "uninstall-cni"
	delete(plugin, "env")
	return s.daemonSet([]any{plugin, cleanup("cleanup")}, []any{cleanup("stay", "--stay")})
}

// NodeDaemonSet runs `twill node` on each node of a cluster, and installs the CNI plugin there: a ConfigMap, and the DaemonSet.
func NodeDaemonSet(s NodeSet) []map[string]any {
	return []map[string]any{
		{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": NodeConfig, "namespace": s.Namespace},
			"data": map[string]any{"calico_backend": s.Backend, "veth_mtu": fmt.Sprint(s.MTU), "cni_network_config": s.Network},
		},
		s.daemonSet(s.first(), []any{s.node()}),
	}
}

// first are the containers that run before a node.
func (s NodeSet) first() []any {
	if s.PodLinks != "" {
		return []any{}
	}
	return []any{s.installer("install")}
}

// daemonSet runs containers on each node, with its network, and with the paths mounted that they name.
func (s NodeSet) daemonSet(first, then []any) map[string]any {
	labels := map[string]any{"k8s-app": NodeAccount}
	var volumes []any
	for _, p := range paths {
		volumes = append(volumes, map[string]any{"name": p.name, "hostPath": map[string]any{"path": p.at, "type": "DirectoryOrCreate"}})
	}
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": map[string]any{"name": NodeAccount, "namespace": s.Namespace, "labels": labels},
		"spec": map[string]any{
			"selector":       map[string]any{"matchLabels": labels},
			"updateStrategy": map[string]any{"type": "RollingUpdate", "rollingUpdate": map[string]any{"maxUnavailable": 1}},
			"template": map[string]any{
				"metadata": map[string]any{"labels": labels},
				"spec": map[string]any{
					"serviceAccountName": NodeAccount, "priorityClassName": "system-node-critical", "hostNetwork": true,
					"nodeSelector": map[string]any{"kubernetes.io/os": "linux"}, "terminationGracePeriodSeconds": 30,
					"tolerations":    []any{map[string]any{"operator": "Exists"}}, // a node without a network, too, and one that is drained
					"initContainers": first, "containers": then, "volumes": volumes,
				},
			},
		},
	}
}

func (s NodeSet) env(pairs ...[2]string) (out []any) {
	for _, p := range pairs {
		out = append(out, map[string]any{"name": p[0], "value": p[1]})
	}
	return out
}

// fromConfig is a variable with the value of a key of the ConfigMap.
func fromConfig(name, key string) any {
	return map[string]any{"name": name, "valueFrom": map[string]any{"configMapKeyRef": map[string]any{"name": NodeConfig, "key": key}}}
}

// fromPod is a variable with the value of a field of the pod.
func fromPod(name, field string) any {
	return map[string]any{"name": name, "valueFrom": map[string]any{"fieldRef": map[string]any{"fieldPath": field}}}
}

func mounted(name, at string) any { return map[string]any{"name": name, "mountPath": at} }

// installer puts the plugin and its network where the host's runtime looks, or takes them away. It needs to be root, and nothing else.
func (s NodeSet) installer(does string) map[string]any {
	return map[string]any{
		"name": "install-cni", "image": s.Image, "imagePullPolicy": "IfNotPresent",
		"command": []any{"twill", "cni", does, "--bin-dir", "/host/opt/cni/bin", "--conf-dir", "/host/etc/cni/net.d"},
		"env": []any{
			fromConfig("CNI_MTU", "veth_mtu"), fromConfig("CNI_NETWORK_CONFIG", "cni_network_config"), fromPod("KUBERNETES_NODE_NAME", "spec.nodeName"),
		},
		"volumeMounts": []any{mounted("cni-bin", "/host/opt/cni/bin"), mounted("cni-net", "/host/etc/cni/net.d")},
	}
}

// podsReachTheirNode is what Kubernetes promises pods, and upstream's manifest says: the API server and DNS of a cluster may be on any node. A
// FelixConfiguration can close nodes again.
var podsReachTheirNode = [2]string{"FELIX_DEFAULTENDPOINTTOHOSTACTION", "Accept"}

func (s NodeSet) node() map[string]any {
	probe := func(path string) map[string]any {
		return map[string]any{"httpGet": map[string]any{"host": "localhost", "port": healthPort, "path": path}, "periodSeconds": 10, "timeoutSeconds": 5, "failureThreshold": 6}
	}
	ready := probe("/readiness")
	ready["periodSeconds"], ready["failureThreshold"] = 2, 3
	env := append(s.env([2]string{"DATASTORE_TYPE", "kubernetes"}, [2]string{"FELIX_HEALTHENABLED", "true"}, podsReachTheirNode), fromPod("NODENAME", "spec.nodeName"), fromPod("NAMESPACE", "metadata.namespace"), fromConfig("CALICO_NETWORKING_BACKEND", "calico_backend"))
	for _, mtu := range []string{"FELIX_IPINIPMTU", "FELIX_VXLANMTU", "FELIX_WIREGUARDMTU"} {
		env = append(env, fromConfig(mtu, "veth_mtu"))
	}
	if s.Group != "" {
		env = append(env, s.env([2]string{"CALICO_API_GROUP", string(s.Group)})...)
	}
	if s.PodLinks != "" {
		env = append(env, s.env([2]string{"FELIX_INTERFACEPREFIX", s.PodLinks})...)
	}
	return map[string]any{
		"name": NodeAccount, "image": s.Image, "imagePullPolicy": "IfNotPresent", "args": []any{"node"}, "env": append(env, s.env(s.Pools...)...),
		"securityContext": map[string]any{"privileged": true}, // it writes sysctls and nftables of the host
		"readinessProbe":  ready, "livenessProbe": probe("/liveness"),
		"resources":    map[string]any{"requests": map[string]any{"cpu": "100m", "memory": "64Mi"}},
		"volumeMounts": []any{mounted("run", "/run/twill"), mounted("data", "/var/lib/twill")},
	}
}
