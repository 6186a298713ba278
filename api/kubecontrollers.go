package api

import "strings"

// KubeControllersConfiguration is the one resource "default" that says what controllers of the cluster do.
type KubeControllersConfiguration struct {
	Object
	Spec   KubeControllersSpec   `json:"spec"`
	Status KubeControllersStatus `json:"status"`
}

// KubeControllersSpec is the body of a KubeControllersConfiguration. Agents go by
// its settings of host endpoints, controllers by all. Durations are text such as "5m".
type KubeControllersSpec struct {
	LogSeverityScreen      string            `json:"logSeverityScreen,omitempty"`
	HealthChecks           string            `json:"healthChecks,omitempty"` // Enabled, Disabled
	EtcdV3CompactionPeriod *string           `json:"etcdV3CompactionPeriod,omitempty"`
	PrometheusMetricsPort  *int              `json:"prometheusMetricsPort,omitempty"`
	Controllers            ControllersConfig `json:"controllers"`
	DebugProfilePort       *int              `json:"debugProfilePort,omitempty"`
}

// ControllersConfig has the settings of each controller; nil turns it off.
type ControllersConfig struct {
	Node             *NodeController         `json:"node,omitempty"`
	Policy           *PeriodicController     `json:"policy,omitempty"`
	WorkloadEndpoint *PeriodicController     `json:"workloadEndpoint,omitempty"`
	ServiceAccount   *PeriodicController     `json:"serviceAccount,omitempty"`
	Namespace        *PeriodicController     `json:"namespace,omitempty"`
	LoadBalancer     *LoadBalancerController `json:"loadBalancer,omitempty"`
	PolicyMigration  *PolicyMigration        `json:"policyMigration,omitempty"`
}

// NodeController looks after nodes.
type NodeController struct {
	ReconcilerPeriod *string            `json:"reconcilerPeriod,omitempty"`
	SyncLabels       string             `json:"syncLabels,omitempty"` // Enabled, Disabled
	HostEndpoint     *AutoHostEndpoints `json:"hostEndpoint,omitempty"`
	LeakGracePeriod  *string            `json:"leakGracePeriod,omitempty"`
}

// AutoHostEndpoints says which host endpoints are made for each node.
type AutoHostEndpoints struct {
	AutoCreate                string                 `json:"autoCreate,omitempty"`                // Disabled (default), Enabled
	CreateDefaultHostEndpoint string                 `json:"createDefaultHostEndpoint,omitempty"` // Enabled (default), Disabled
	Templates                 []HostEndpointTemplate `json:"templates,omitempty"`
}

// HostEndpointTemplate is one host endpoint for each node that it selects, or, with a pattern, one for each of its
// interfaces that matches.
type HostEndpointTemplate struct {
	GenerateName     string            `json:"generateName,omitempty"`     // a part of its name; empty: its name has no such part
	InterfaceCIDRs   []string          `json:"interfaceCIDRs,omitempty"`   // its addresses are those of the node in these
	InterfacePattern string            `json:"interfacePattern,omitempty"` // a regular expression
	Labels           map[string]string `json:"labels,omitempty"`           // they win over the node's
	NodeSelector     string            `json:"nodeSelector,omitempty"`
}

// PeriodicController is one with nothing to say but how often.
type PeriodicController struct {
	ReconcilerPeriod *string `json:"reconcilerPeriod,omitempty"`
}

// LoadBalancerController gives addresses to services.
type LoadBalancerController struct {
	AssignIPs string `json:"assignIPs,omitempty"` // AllServices, RequestedServicesOnly
}

// PolicyMigration renames policies that old versions wrote.
type PolicyMigration struct {
	Enabled string `json:"enabled,omitempty"` // Enabled, Disabled
}

// KubeControllersStatus is written by the controllers of a cluster, Twill's or Calico's.
type KubeControllersStatus struct {
	RunningConfig   *KubeControllersSpec `json:"runningConfig,omitempty"`   // what is in effect
	EnvironmentVars map[string]string    `json:"environmentVars,omitempty"` // of their environment, which go before spec
}

// EnvAutoHostEndpoints is the variable of the controllers' environment that goes before spec.controllers.node.hostEndpoint.
const EnvAutoHostEndpoints = "AUTO_HOST_ENDPOINTS"

// HostEndpointsByVariable are the settings that a value of [EnvAutoHostEndpoints] means, in any case of letters; false: it means none.
func HostEndpointsByVariable(value string) (AutoHostEndpoints, bool) {
	for _, v := range []string{Enabled, Disabled} {
		if strings.EqualFold(value, v) {
			return AutoHostEndpoints{AutoCreate: v, CreateDefaultHostEndpoint: Enabled}, true
		}
	}
	return AutoHostEndpoints{}, false
}

// HostEndpoints are the settings of automatic host endpoints that are in effect, with their defaults: the controllers' environment, as the
// status has it, goes before spec.
func (k *KubeControllersConfiguration) HostEndpoints() AutoHostEndpoints {
	if h, ok := HostEndpointsByVariable(k.Status.EnvironmentVars[EnvAutoHostEndpoints]); ok {
		return h
	}
	return k.Spec.HostEndpoints()
}

// HostEndpoints are the settings of automatic host endpoints, with their defaults.
func (s *KubeControllersSpec) HostEndpoints() AutoHostEndpoints {
	out := AutoHostEndpoints{}
	if n := s.Controllers.Node; n != nil && n.HostEndpoint != nil {
		out = *n.HostEndpoint
	}
	if out.AutoCreate == "" {
		out.AutoCreate = Disabled
	}
	if out.CreateDefaultHostEndpoint == "" {
		out.CreateDefaultHostEndpoint = Enabled
	}
	return out
}

// Values of switches.
const (
	Enabled  = "Enabled"
	Disabled = "Disabled"
)
