package kubecontrollers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/controller"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kubemirror"
	"github.com/twillnet/twill/internal/resources"
)

// Status is what is in effect, as upstream's controllers write it into the resource default (nil: there is none): all settings, and the variables that
// were taken over.
func (e Environment) Status(k *api.KubeControllersConfiguration, kubernetes bool) api.KubeControllersStatus {
	s, _ := e.Resolve(k, kubernetes)
	compact := s.Copy.Compact
	if kubernetes {
		compact = defaultCompact // nothing is compacted; upstream says so all the same
	}
	out := api.KubeControllersStatus{RunningConfig: &api.KubeControllersSpec{
		LogSeverityScreen: severity(s.Level), HealthChecks: onOrOff(s.Health), EtcdV3CompactionPeriod: duration(compact), PrometheusMetricsPort: &s.MetricsPort,
	}}
	vars := []string{"LOG_LEVEL", "ENABLED_CONTROLLERS", "RECONCILER_PERIOD", "COMPACTION_PERIOD", "HEALTH_ENABLED"}
	if s.ProfilePort != 0 {
		out.RunningConfig.DebugProfilePort = &s.ProfilePort
	}
	c := &out.RunningConfig.Controllers
	if s.Node != nil {
		hosts := e.hostEndpoints(k)
		c.Node = &api.NodeController{
			ReconcilerPeriod: duration(s.Node.Period), SyncLabels: onOrOff(s.Node.Labels), HostEndpoint: &hosts, LeakGracePeriod: duration(s.Node.Grace),
		}
		vars = append(vars, api.EnvAutoHostEndpoints)
		if !kubernetes {
			vars = append(vars, "SYNC_NODE_LABELS")
		}
	}
	for _, name := range s.Copy.Controllers {
		p := &api.PeriodicController{ReconcilerPeriod: duration(s.Copy.Resync)}
		switch name {
		case kubemirror.Policies:
			c.Policy = p
		case kubemirror.Namespaces:
			c.Namespace = p
		case kubemirror.ServiceAccounts:
			c.ServiceAccount = p
		case kubemirror.Endpoints:
			c.WorkloadEndpoint = p
		}
	}
	if s.LoadBalancer != nil {
		c.LoadBalancer = &api.LoadBalancerController{AssignIPs: map[bool]string{true: allServicesWord, false: requestedServices}[s.LoadBalancer.All]}
	}
	if s.PolicyNames {
		c.PolicyMigration = &api.PolicyMigration{Enabled: api.Enabled}
	} else if k != nil && k.Spec.Controllers.PolicyMigration != nil && e["ENABLED_CONTROLLERS"] == "" {
		c.PolicyMigration = &api.PolicyMigration{Enabled: api.Disabled}
	}
	out.EnvironmentVars = map[string]string{}
	for _, name := range vars {
		if v, set := e[name]; set {
			out.EnvironmentVars[name] = v
		}
	}
	if s.Node != nil && kubernetes { // for which labels are not copied
		out.EnvironmentVars["DATASTORE_TYPE"] = "kubernetes"
	}
	return out
}

// Words of spec.controllers.loadBalancer.assignIPs.
const (
	allServicesWord   = "AllServices"
	requestedServices = "RequestedServicesOnly"
)

func onOrOff(on bool) string { return map[bool]string{true: api.Enabled, false: api.Disabled}[on] }

func duration(d time.Duration) *string { text := d.String(); return &text }

// severity is a level as the resource names it.
func severity(l slog.Level) string {
	for _, s := range []struct {
		level slog.Level
		name  string
	}{{slog.LevelDebug, "Debug"}, {slog.LevelInfo, "Info"}, {slog.LevelWarn, "Warning"}, {slog.LevelError, "Error"}, {slog.LevelError + 4, "Fatal"}} {
		if l <= s.level {
			return s.name
		}
	}
	return "None"
}

// defaultConfiguration is what upstream's controllers make where there is none.
func defaultConfiguration() *api.KubeControllersConfiguration {
	k := api.New(api.KindKubeControllersConfiguration).(*api.KubeControllersConfiguration)
	k.Metadata.Name = theConfiguration
	every := &api.PeriodicController{ReconcilerPeriod: duration(defaultPeriod)}
	k.Spec = api.KubeControllersSpec{
		LogSeverityScreen: "Info", HealthChecks: api.Enabled, EtcdV3CompactionPeriod: duration(defaultCompact),
		Controllers: api.ControllersConfig{
			Node: &api.NodeController{
				ReconcilerPeriod: duration(defaultPeriod), SyncLabels: api.Enabled, LeakGracePeriod: duration(defaultGrace),
				HostEndpoint: &api.AutoHostEndpoints{AutoCreate: api.Disabled, CreateDefaultHostEndpoint: api.Enabled},
			},
			Policy: every, Namespace: every, ServiceAccount: every, WorkloadEndpoint: every,
			LoadBalancer: &api.LoadBalancerController{AssignIPs: allServicesWord}, PolicyMigration: &api.PolicyMigration{Enabled: api.Enabled},
		},
	}
	return k
}

// runningConfig is what the controller of the configuration's status needs.
type runningConfig struct {
	Store       datastore.Store
	Same        bool // Kubernetes' API is the datastore
	Environment Environment
	Turn        func(key string, err error)
	Log         *slog.Logger
}

// running writes into the KubeControllersConfiguration what is in effect, as upstream's controllers do. Agents go by it, too: it tells them what the
// environment of this process says.
type running struct {
	cfg  runningConfig
	loop *controller.Controller

	// The loop's alone.
	at     api.Update // as it is stored; without a value it is not
	now    *api.KubeControllersConfiguration
	wrote  []byte // the status that was written last
	when   time.Time
	rivals bool // it was logged that somebody else writes it
}

func newRunning(cfg runningConfig) *running {
	r := &running{cfg: cfg}
	prefix := api.KeyPrefix(api.KindKubeControllersConfiguration, "")
	r.loop = controller.New(controller.Config{
		Name: "what is in effect", Store: cfg.Store, Prefixes: []string{prefix}, Log: cfg.Log,
		Observe: func(u api.Update) []string {
			if u.Key != prefix+theConfiguration {
				return nil
			}
			st, _ := api.DecodeStored(u) // one that cannot be read is left as it is
			r.at = u
			r.now, _ = st.Resource.(*api.KubeControllersConfiguration)
			return []string{theConfiguration}
		},
		Reconcile: func(ctx context.Context, key string) (time.Time, error) {
			again, err := r.reconcile(ctx)
			cfg.Turn(key, err)
			return again, err
		},
	})
	r.loop.Enqueue(theConfiguration, 0) // also without a resource
	return r
}

func (r *running) reconcile(ctx context.Context) (again time.Time, err error) {
	if r.at.Value == nil {
		k := defaultConfiguration()
		k.Status = r.cfg.Environment.Status(k, r.cfg.Same)
		if _, err = resources.CreateNew(ctx, r.cfg.Store, k); overtaken(err) {
			return time.Now().Add(time.Second), nil
		}
		return again, err
	}
	if r.now == nil {
		return again, nil // the log says so already
	}
	is, err := json.Marshal(r.now.Status)
	if err != nil {
		return again, err
	}
	want, err := json.Marshal(r.cfg.Environment.Status(r.now, r.cfg.Same))
	if err != nil || bytes.Equal(is, want) {
		return again, err
	}
	if next := r.when.Add(defaultPeriod); bytes.Equal(want, r.wrote) && time.Now().Before(next) {
		if !r.rivals {
			r.cfg.Log.Warn("somebody else writes another status into the KubeControllersConfiguration: do Calico's controllers run, too? Their environment is another")
		}
		r.rivals = true
		return next, nil
	}
	if err := r.write(ctx, want); overtaken(err) {
		return time.Now().Add(time.Second), nil
	} else if err != nil {
		return again, err
	}
	r.wrote, r.when = want, time.Now()
	return again, nil
}

// overtaken: somebody else was faster, of whom the watch will tell.
func overtaken(err error) bool {
	return errors.Is(err, datastore.ErrConflict) || errors.Is(err, datastore.ErrExists) || errors.Is(err, datastore.ErrNotFound)
}

// write replaces what the status says of what is in effect. All else that is stored stays.
func (r *running) write(ctx context.Context, status []byte) error {
	tree, err := resources.Tree(r.at.Value)
	if err != nil {
		return err
	}
	says, err := resources.Tree(status)
	if err != nil {
		return err
	}
	document, _ := tree.(map[string]any)
	has, _ := document["status"].(map[string]any)
	if has == nil {
		has = map[string]any{}
	}
	for _, field := range []string{"runningConfig", "environmentVars"} {
		if v, ok := says.(map[string]any)[field]; ok {
			has[field] = v
		} else {
			delete(has, field)
		}
	}
	document["status"] = has
	next := r.at
	next.Value = resources.InOrderOf(r.at.Value, document)
	_, err = r.cfg.Store.Update(ctx, next)
	return err
}
