package api

func (v *validator) migration(s *LiveMigrationSpec) {
	const one = ": want one of them"
	if f := s.Source; f != nil {
		if (f.Workload == nil) == (f.WorkloadEndpoint == nil) {
			v.fail("spec.source", "has both workload and workloadEndpoint, or neither"+one)
		}
		if w := f.Workload; w != nil {
			v.identifier("spec.source.workload", w.Hostname, w.OrchestratorID, w.WorkloadID)
		}
		if e := f.WorkloadEndpoint; e != nil {
			v.endpointIdentifier("spec.source.workloadEndpoint", *e)
		}
	}
	t := s.Target
	if t == nil {
		v.fail("spec.target", "is missing: want the workloadEndpoint to which the machine goes, or a selector of it")
		return
	}
	if (t.Selector == nil) == (t.WorkloadEndpoint == nil) {
		v.fail("spec.target", "has both selector and workloadEndpoint, or neither"+one)
	}
	if t.Selector != nil {
		if *t.Selector == "" {
			v.fail("spec.target.selector", "is empty, which selects nothing: want a selector of the target's labels")
		}
		v.selector("spec.target.selector", *t.Selector, false)
	}
	if e := t.WorkloadEndpoint; e != nil {
		v.endpointIdentifier("spec.target.workloadEndpoint", *e)
		if s.Source != nil && s.Source.WorkloadEndpoint != nil && s.Source.WorkloadEndpoint.Canonical() == e.Canonical() {
			v.fail("spec.target.workloadEndpoint", "is the source, too: want the endpoint on the other host")
		}
	}
}

func (v *validator) endpointIdentifier(path string, e WorkloadEndpointIdentifier) {
	v.identifier(path, e.Hostname, e.OrchestratorID, e.WorkloadID)
	if e.EndpointID == "" {
		v.fail(path+".endpointID", "is missing: want spec.endpoint of the WorkloadEndpoint")
	}
}

// identifier holds what names a workload to be complete: a part that is left out means nothing in particular, and matches no endpoint.
func (v *validator) identifier(path, host, orchestrator, workload string) {
	if orchestrator == "" {
		v.fail(path+".orchestratorID", "is missing: want spec.orchestrator of the WorkloadEndpoint, such as openstack")
	}
	if workload == "" {
		v.fail(path+".workloadID", "is missing: want NAMESPACE/WORKLOAD, spec.workload of the WorkloadEndpoint after its namespace")
	}
	if host == "" && orchestrator != "k8s" {
		v.fail(path+".hostname", "is missing: want spec.node of the WorkloadEndpoint")
	}
}

// closeMigration closes a migration of which nobody can say where it goes. One that names it in two ways means both.
func (d *decoder) closeMigration(s *LiveMigrationSpec) {
	if s.Target == nil || s.Target.Selector == nil && s.Target.WorkloadEndpoint == nil {
		d.shut("spec.target", "names no endpoint, so that none waits for the machine")
		return
	}
	if sel := s.Target.Selector; sel != nil {
		if reason := checkSelector(*sel, false); reason != "" {
			d.shut("spec.target.selector", reason)
		}
	}
}
