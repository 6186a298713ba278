package api

import (
	"fmt"
	"net/netip"
	"regexp"
	"strings"
)

// validateControllers is apart from Validate because what is stored is judged by it too.
func validateControllers(r *KubeControllersConfiguration) FieldErrors {
	v := validator{r: r}
	if r.Metadata.Name != "default" {
		v.fail("metadata.name", fmt.Sprintf("is %q: there is only one, with the name default", r.Metadata.Name))
	}
	s := &r.Spec
	v.optionally("spec.logSeverityScreen", s.LogSeverityScreen, "None", "Debug", "Info", "Warning", "Error", "Fatal", "Panic")
	v.optionally("spec.healthChecks", s.HealthChecks, Enabled, Disabled)
	v.duration("spec.etcdV3CompactionPeriod", s.EtcdV3CompactionPeriod)
	for _, p := range []struct {
		path string
		port *int
	}{{"spec.prometheusMetricsPort", s.PrometheusMetricsPort}, {"spec.debugProfilePort", s.DebugProfilePort}} {
		if p.port != nil && (*p.port < 0 || *p.port > 65535) {
			v.fail(p.path, fmt.Sprintf("is %d: want 0 to 65535", *p.port))
		}
	}
	v.controllers(&s.Controllers)
	return v.errs
}

func (v *validator) duration(path string, text *string) {
	if text != nil && !validDuration(*text) {
		v.fail(path, fmt.Sprintf("is %q: want a duration such as 90s or 1m30s", *text))
	}
}

func (v *validator) controllers(c *ControllersConfig) {
	const at = "spec.controllers"
	for _, p := range []struct {
		name string
		c    *PeriodicController
	}{{"policy", c.Policy}, {"workloadEndpoint", c.WorkloadEndpoint}, {"serviceAccount", c.ServiceAccount}, {"namespace", c.Namespace}} {
		if p.c != nil {
			v.duration(at+"."+p.name+".reconcilerPeriod", p.c.ReconcilerPeriod)
		}
	}
	if c.LoadBalancer != nil {
		v.optionally(at+".loadBalancer.assignIPs", c.LoadBalancer.AssignIPs, "AllServices", "RequestedServicesOnly")
	}
	if c.PolicyMigration != nil {
		v.optionally(at+".policyMigration.enabled", c.PolicyMigration.Enabled, Enabled, Disabled)
	}
	n := c.Node
	if n == nil {
		return
	}
	v.duration(at+".node.reconcilerPeriod", n.ReconcilerPeriod)
	v.duration(at+".node.leakGracePeriod", n.LeakGracePeriod)
	v.optionally(at+".node.syncLabels", n.SyncLabels, Enabled, Disabled)
	if h := n.HostEndpoint; h != nil {
		v.optionally(hostEndpointPath+".autoCreate", h.AutoCreate, Enabled, Disabled)
		v.optionally(hostEndpointPath+".createDefaultHostEndpoint", h.CreateDefaultHostEndpoint, Enabled, Disabled)
		var names []string
		for i := range h.Templates {
			t, at := &h.Templates[i], fmt.Sprintf("%s.templates[%d]", hostEndpointPath, i)
			v.template(at, t)
			if t.GenerateName == "" && t.InterfacePattern == "" && h.CreateDefaultHostEndpoint != Disabled {
				v.fail(at+".generateName", "is missing: so the host endpoint has the name of the default one; give one, or set createDefaultHostEndpoint to Disabled")
			}
			names = append(names, h.Templates[i].GenerateName)
		}
		v.unique(hostEndpointPath+".templates", names)
	}
}

// hostEndpointPath is where automatic host endpoints are configured.
const hostEndpointPath = "spec.controllers.node.hostEndpoint"

func (v *validator) template(path string, t *HostEndpointTemplate) {
	if t.GenerateName != "" {
		v.check(path+".generateName", badName(t.GenerateName))
	}
	v.selector(path+".nodeSelector", t.NodeSelector, false)
	v.labels(path+".labels", t.Labels)
	if len(t.InterfaceCIDRs) == 0 && t.InterfacePattern == "" {
		v.fail(path+".interfaceCIDRs", "is missing, and so is interfacePattern: give one of them, or it is for no address")
	}
	for i, c := range t.InterfaceCIDRs {
		_, err := netip.ParsePrefix(c)
		_, reason := prefixOf(c)
		if reason == "" && err != nil {
			reason = fmt.Sprintf("is %q: want a prefix with its length", c)
		}
		v.check(fmt.Sprintf("%s.interfaceCIDRs[%d]", path, i), reason)
	}
	v.unique(path+".interfaceCIDRs", t.InterfaceCIDRs)
	if _, err := regexp.Compile(t.InterfacePattern); err != nil {
		v.fail(path+".interfacePattern", err.Error())
	}
}

// closeControllers closes the resource if it does not say which host endpoints there should be: then those that exist stay.
// What else is wrong in it is no concern of ours.
func (d *decoder) closeControllers(r *KubeControllersConfiguration) {
	for _, e := range validateControllers(r) {
		if strings.HasPrefix(e.Path, hostEndpointPath) {
			d.shut(e.Path, e.Reason)
		}
	}
	if v, set := r.Status.EnvironmentVars[EnvAutoHostEndpoints]; set {
		if _, ok := HostEndpointsByVariable(v); !ok {
			d.shut("status.environmentVars."+EnvAutoHostEndpoints, fmt.Sprintf("is %q: want enabled or disabled", v))
		}
	}
}
