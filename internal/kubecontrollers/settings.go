package kubecontrollers

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kubemirror"
)

// Settings are what the controllers go by: the environment over the KubeControllersConfiguration over Calico's defaults.
type Settings struct {
	Level       slog.Level
	Health      bool
	MetricsPort int           // zero: none
	ProfilePort int           // of loopback; zero: none
	Node        *NodeSettings // nil: nothing is done for nodes and addresses
	Copy        CopySettings  // with etcd
	// LoadBalancer: nil: services get no addresses, and keep those that they have.
	LoadBalancer *BalancerSettings
	PolicyNames  bool // policies of older versions of upstream are stored under the names that users know
}

// BalancerSettings are those of the controller of load balancers' addresses.
type BalancerSettings struct {
	All bool // services of type LoadBalancer that do not say whose they want to be get addresses, too
}

// CopySettings are those of what keeps etcd as Kubernetes says. Where its API is the datastore, they are zero.
type CopySettings struct {
	Controllers []string      // of kubemirror.Names, those that run
	Resync      time.Duration // between looks at all of etcd
	Compact     time.Duration // after which etcd's history is forgotten; zero: never
}

// NodeSettings are those of the controllers of nodes and of addresses.
type NodeSettings struct {
	Labels bool          // with etcd: the labels of Kubernetes' nodes are copied to ours
	Period time.Duration // between looks at everything
	Grace  time.Duration // for how long an address must be nobody's; zero: none is freed
}

// Calico's defaults.
const (
	defaultPeriod  = 5 * time.Minute
	defaultGrace   = 15 * time.Minute
	defaultMetrics = 9094
	defaultCompact = 10 * time.Minute
)

// Environment are the variables that go before the resource, by name.
type Environment map[string]string

// Variables are those that are read, as Calico's controllers have them.
var Variables = []string{
	"LOG_LEVEL", "ENABLED_CONTROLLERS", "RECONCILER_PERIOD", "SYNC_NODE_LABELS", api.EnvAutoHostEndpoints, "COMPACTION_PERIOD", "HEALTH_ENABLED",
	"NODE_WORKERS", "POLICY_WORKERS", "PROFILE_WORKERS", "WORKLOAD_ENDPOINT_WORKERS",
}

// ReadEnvironment takes the variables that are set.
func ReadEnvironment(lookup func(string) (string, bool)) Environment {
	out := Environment{}
	for _, name := range Variables {
		if v, ok := lookup(name); ok && v != "" {
			out[name] = v
		}
	}
	return out
}

// Names of controllers in ENABLED_CONTROLLERS; profile is what manifests of old versions call namespace. Where Kubernetes' API is the datastore, what mirrors copy is there already.
var (
	mirrors = []string{"policy", "namespace", "profile", "serviceaccount", "workloadendpoint"}
	known   = append([]string{"node", "loadbalancer", "migration"}, mirrors...)
)

// levels are names of levels, in lower case.
var levels = map[string]slog.Level{
	"debug": slog.LevelDebug, "trace": slog.LevelDebug, "info": slog.LevelInfo, "warn": slog.LevelWarn, "warning": slog.LevelWarn,
	"error": slog.LevelError, "error+4": slog.LevelError + 4, "fatal": slog.LevelError + 4, "panic": slog.LevelError + 4, "none": slog.LevelError + 8,
}

// Check returns what is wrong with the environment, by name: such a process does not start.
func (e Environment) Check() error {
	for _, name := range Variables {
		v, set := e[name]
		if !set {
			continue
		}
		var err error
		switch name {
		case "LOG_LEVEL":
			if _, ok := levels[strings.ToLower(v)]; !ok {
				err = errors.New("want debug, info, warning, error, fatal or panic")
			}
		case "ENABLED_CONTROLLERS":
			err = checkEnabled(v)
		case "RECONCILER_PERIOD", "COMPACTION_PERIOD":
			_, err = time.ParseDuration(v)
		case "SYNC_NODE_LABELS", "HEALTH_ENABLED":
			_, err = strconv.ParseBool(v)
		case api.EnvAutoHostEndpoints:
			if _, ok := api.HostEndpointsByVariable(v); !ok {
				err = errors.New("want enabled or disabled")
			}
		}
		if err != nil {
			return fmt.Errorf("%s is %q: %w", name, v, err)
		}
	}
	return nil
}

func checkEnabled(list string) error {
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "flannelmigration":
			return errors.New("Twill does not take over from flannel")
		case name != "" && !slices.Contains(known, name):
			return fmt.Errorf("there is no controller %q: want some of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

// Resolve joins an environment that Check finds right with what the resource default says; nil: there is none. Kubernetes says that its API
// is the datastore. The warnings are of settings that have no effect.
func (e Environment) Resolve(k *api.KubeControllersConfiguration, kubernetes bool) (s Settings, warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	spec := api.KubeControllersSpec{Controllers: api.ControllersConfig{Node: &api.NodeController{}, LoadBalancer: &api.LoadBalancerController{}, PolicyMigration: &api.PolicyMigration{}}}
	if k != nil {
		spec = k.Spec
	}
	s = Settings{Level: levels[strings.ToLower(cmp.Or(e["LOG_LEVEL"], spec.LogSeverityScreen, "info"))], Health: spec.HealthChecks != api.Disabled, MetricsPort: defaultMetrics}
	if v, set := e["HEALTH_ENABLED"]; set {
		s.Health, _ = strconv.ParseBool(v)
	}
	if spec.PrometheusMetricsPort != nil {
		s.MetricsPort = *spec.PrometheusMetricsPort
	}
	if spec.DebugProfilePort != nil {
		s.ProfilePort = *spec.DebugProfilePort
	}
	on := e.enabled(spec.Controllers)
	if on["node"] {
		s.Node = e.node(cmp.Or(spec.Controllers.Node, &api.NodeController{}), kubernetes, warn)
	}
	if !kubernetes {
		if k == nil && e["ENABLED_CONTROLLERS"] == "" {
			on = map[string]bool{"policy": true, "namespace": true, "serviceaccount": true, "workloadendpoint": true, "loadbalancer": true, "migration": true}
		}
		s.Copy = e.copied(spec, on, warn)
	}
	if on["loadbalancer"] {
		c := cmp.Or(spec.Controllers.LoadBalancer, &api.LoadBalancerController{})
		s.LoadBalancer = &BalancerSettings{All: c.AssignIPs != requestedServices}
	}
	s.PolicyNames = on["migration"] && cmp.Or(spec.Controllers.PolicyMigration, &api.PolicyMigration{}).Enabled != api.Disabled
	for _, name := range Variables {
		if e[name] != "" && strings.HasSuffix(name, "_WORKERS") {
			warn("%s is %q: each controller has one worker", name, e[name])
		}
	}
	return s, warnings
}

// copied are the settings of what keeps etcd as Kubernetes says.
func (e Environment) copied(spec api.KubeControllersSpec, on map[string]bool, warn func(string, ...any)) CopySettings {
	out := CopySettings{Resync: defaultPeriod, Compact: defaultCompact}
	for _, name := range kubemirror.Names() {
		if on[name] || name == kubemirror.Namespaces && on["profile"] {
			out.Controllers = append(out.Controllers, name)
		}
	}
	c := spec.Controllers
	periods := map[string]*string{}
	for name, r := range map[string]*api.PeriodicController{"policy": c.Policy, "namespace": c.Namespace, "serviceAccount": c.ServiceAccount, "workloadEndpoint": c.WorkloadEndpoint} {
		if r != nil && r.ReconcilerPeriod != nil {
			periods["spec.controllers."+name+".reconcilerPeriod"] = r.ReconcilerPeriod
		}
	}
	if v, set := e["RECONCILER_PERIOD"]; set {
		periods = map[string]*string{"RECONCILER_PERIOD": &v}
	}
	for i, field := range slices.Sorted(maps.Keys(periods)) {
		v, err := time.ParseDuration(*periods[field])
		switch {
		case err != nil || v < time.Second:
			warn("%s is %q: want a duration such as 5m; %s is in effect", field, *periods[field], out.Resync)
		case i == 0 || v < out.Resync: // all are looked at together: the shortest holds
			out.Resync = v
		}
	}
	text := spec.EtcdV3CompactionPeriod
	if v, set := e["COMPACTION_PERIOD"]; set {
		text = &v
	}
	if text != nil {
		if v, err := time.ParseDuration(*text); err != nil || v < 0 {
			warn("etcdV3CompactionPeriod is %q: want a duration such as 10m, or 0; %s is in effect", *text, out.Compact)
		} else {
			out.Compact = v
		}
	}
	return out
}

// enabled says which controllers are turned on.
func (e Environment) enabled(c api.ControllersConfig) map[string]bool {
	if list, set := e["ENABLED_CONTROLLERS"]; set {
		on := map[string]bool{}
		for name := range strings.SplitSeq(list, ",") {
			on[strings.TrimSpace(name)] = true
		}
		return on
	}
	return map[string]bool{
		"node": c.Node != nil, "policy": c.Policy != nil, "namespace": c.Namespace != nil, "serviceaccount": c.ServiceAccount != nil,
		"workloadendpoint": c.WorkloadEndpoint != nil, "loadbalancer": c.LoadBalancer != nil, "migration": c.PolicyMigration != nil,
	}
}

func (e Environment) node(c *api.NodeController, kubernetes bool, warn func(string, ...any)) *NodeSettings {
	out := &NodeSettings{Labels: c.SyncLabels != api.Disabled && !kubernetes, Period: defaultPeriod, Grace: defaultGrace}
	const always = "with this datastore a Node is that of Kubernetes, with its labels"
	if kubernetes && c.SyncLabels == api.Disabled {
		warn("spec.controllers.node.syncLabels is %q: %s", c.SyncLabels, always)
	}
	if v, set := e["SYNC_NODE_LABELS"]; set {
		on, _ := strconv.ParseBool(v) // that it is one was checked
		switch {
		case !kubernetes:
			out.Labels = on
		case !on:
			warn("SYNC_NODE_LABELS is %q: %s", v, always)
		}
	}
	period := c.ReconcilerPeriod
	if v, set := e["RECONCILER_PERIOD"]; set {
		period = &v
	}
	for _, d := range []struct {
		field string
		text  *string
		to    *time.Duration
		least time.Duration
	}{{"reconcilerPeriod", period, &out.Period, time.Second}, {"leakGracePeriod", c.LeakGracePeriod, &out.Grace, 0}} {
		if d.text == nil {
			continue
		}
		v, err := time.ParseDuration(*d.text)
		if err != nil || v < d.least {
			warn("spec.controllers.node.%s is %q: want a duration such as 5m; %s is in effect", d.field, *d.text, *d.to)
			continue
		}
		*d.to = v
	}
	return out
}
