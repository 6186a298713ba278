package calctest

import (
	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
)

// calledBy is how a LiveMigration names an endpoint.
func (x *expected) calledBy(namespace string, s api.WorkloadEndpointSpec) [4]string {
	switch s.Orchestrator {
	case "k8s":
		return [4]string{"", "k8s", namespace + "/" + s.Pod, s.Endpoint}
	case "cni":
		return [4]string{s.Node, "cni", s.ContainerID, s.Endpoint}
	case "libnetwork":
		return [4]string{s.Node, "libnetwork", "libnetwork", s.Endpoint}
	}
	return [4]string{s.Node, s.Orchestrator, namespace + "/" + s.Workload, s.Endpoint}
}

// moves says whether the machine of an endpoint comes or goes.
func (x *expected) moves(l expectedLocal) string {
	comes, goes := false, false
	is := func(host, orchestrator, workload, endpoint string) bool {
		if orchestrator == "k8s" {
			host = ""
		}
		return orchestrator != "" && l.named == [4]string{host, orchestrator, workload, endpoint}
	}
	for _, m := range x.migrations {
		if t := m.Spec.Target; t != nil {
			if e := t.WorkloadEndpoint; e != nil {
				comes = comes || is(e.Hostname, e.OrchestratorID, e.WorkloadID, e.EndpointID)
			}
			if t.Selector != nil && *t.Selector != "" && l.labels[api.LabelNamespace] == m.Metadata.Namespace {
				sel, err := selector.Parse(*t.Selector)
				comes = comes || err == nil && sel.Match(l.labels)
			}
		}
		if s := m.Spec.Source; s != nil {
			if e := s.WorkloadEndpoint; e != nil {
				goes = goes || is(e.Hostname, e.OrchestratorID, e.WorkloadID, e.EndpointID)
			}
			if w := s.Workload; w != nil {
				goes = goes || is(w.Hostname, w.OrchestratorID, w.WorkloadID, l.named[3])
			}
		}
	}
	switch {
	case comes:
		return " comes"
	case goes:
		return " goes"
	}
	return ""
}

// migration is of one of the workloads, or of those that a selector finds; some of it is wrong at times.
func (w *Cluster) migration(namespace, name string) object {
	of := func() object {
		p := w.place(w.rng.IntN(w.cfg.Workloads))
		host := p.node
		if w.maybe(0.3) {
			host = "elsewhere" // which of a pod says nothing
		}
		return object{"hostname": host, "orchestratorID": pick(w, []string{"k8s", "k8s", "k8s", "openstack"}), "workloadID": p.namespace + "/" + p.workload}
	}
	endpoint := func() object {
		o := of()
		o["endpointID"] = pick(w, []string{"eth0", "eth0", "eth1"})
		return o
	}
	source, target := object{}, object{}
	switch {
	case w.maybe(0.4):
		source["workload"] = of()
	case w.maybe(0.8):
		source["workloadEndpoint"] = endpoint()
	}
	wrong := w.cfg.Wrong > 0 && w.maybe(0.3) // with both targets, or with none
	named := w.maybe(0.6)
	if named {
		target["workloadEndpoint"] = endpoint()
	}
	if named == wrong {
		target["selector"] = w.selector()
	}
	return resource(api.KindLiveMigration, namespace, name, nil, object{"source": source, "target": target})
}
