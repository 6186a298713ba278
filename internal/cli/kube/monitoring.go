package kube

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
)

func (c *command) monitoringCmd() *cobra.Command {
	var dashboard, rules bool
	namespace := "kube-system"
	cmd := &cobra.Command{
		Use:   "monitoring",
		Short: "Print a Grafana dashboard and alerts, for kubectl apply",
		Long: `Monitoring prints what the Prometheus operator and Grafana take from a cluster:
PodMonitors of nodes and controllers, a PrometheusRule with alerts, and a ConfigMap
with a dashboard, which Grafana's sidecar finds by its label grafana_dashboard. With
--dashboard it is the dashboard alone, for Grafana's import, and with --rules the
alerts alone, for a Prometheus without the operator. Nothing is sent anywhere.

Nodes serve metrics if settings say so:

twill patch felixconfiguration default -p '{"spec":{"prometheusMetricsEnabled":true}}'

Exit code: 0 printed, 1 standard output cannot be written, 2 usage.`,
		Example: `  twill kube monitoring | kubectl apply --server-side -f -
  twill kube monitoring --dashboard > twill.json
  twill kube monitoring --rules > twill.rules.yaml`,
		Args: console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			switch {
			case dashboard && rules:
				return console.Usage("--dashboard and --rules: leave one of them out, or both for all")
			case dashboard:
				text, err := json.MarshalIndent(board(), "", "  ")
				if err != nil {
					return err
				}
				_, err = fmt.Fprintf(c.Out, "%s\n", text)
				return err
			case rules:
				text, err := yaml.Marshal(map[string]any{"groups": alertGroups()})
				if err != nil {
					return err
				}
				_, err = c.Out.Write(text)
				return err
			}
			objects, err := monitoring(namespace)
			if err != nil {
				return err
			}
			return documents(c.Out, objects)
		},
	}
	cmd.Flags().BoolVar(&dashboard, "dashboard", false, "print the dashboard alone, as JSON")
	cmd.Flags().BoolVar(&rules, "rules", false, "print the alerts alone, as a file of rules")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "of nodes and controllers, and of these objects")
	return cmd
}

// Ports of metrics: the agent's, and the controllers'.
const (
	agentMetrics       = 9091
	controllersMetrics = 9094
)

func monitoring(namespace string) ([]map[string]any, error) {
	text, err := json.Marshal(board())
	if err != nil {
		return nil, err
	}
	meta := func(name string, labels map[string]any) map[string]any {
		return map[string]any{"name": name, "namespace": namespace, "labels": labels}
	}
	monitor := func(name string, port int) map[string]any {
		return map[string]any{
			"apiVersion": "monitoring.coreos.com/v1", "kind": "PodMonitor", "metadata": meta(name, map[string]any{"k8s-app": name}),
			"spec": map[string]any{
				"selector": map[string]any{"matchLabels": map[string]any{"k8s-app": name}},
				"podMetricsEndpoints": []any{map[string]any{
					"targetPort": port,
					"relabelings": []any{map[string]any{
						"sourceLabels": []any{"__meta_kubernetes_pod_node_name"}, "targetLabel": "instance",
					}},
				}},
			},
		}
	}
	return []map[string]any{
		monitor(crds.NodeAccount, agentMetrics),
		monitor(crds.ControllersAccount, controllersMetrics),
		{
			"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "metadata": meta("twill", map[string]any{"app": "twill"}),
			"spec": map[string]any{"groups": alertGroups()},
		},
		{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta("twill-dashboard", map[string]any{"grafana_dashboard": "1"}),
			"data": map[string]any{"twill.json": string(text)},
		},
	}, nil
}

// alert is a rule of Prometheus.
type alert struct {
	name, expr, lasts, severity string
	summary, todo               string // what is so, and what to do about it
}

// alerts are what somebody should look at. docs/metrics.md has their metrics.
var alerts = []alert{
	{
		"TwillNotInForce", `twill_dataplane_settled == 0`, "2m", "critical",
		"what the datastore asks for is not in force on {{ $labels.instance }}", "twill status on that node says what, and why",
	},
	{
		"TwillDatastoreAway", `felix_resync_state < 3`, "5m", "warning",
		"the agent of {{ $labels.instance }} has not heard from the datastore; what is in its kernel stays in force", "twill doctor on that node",
	},
	{
		"TwillDatastoreFrozen", `twill_datastore_frozen == 1`, "1h", "warning",
		"datastoreReady has been false for an hour: nothing that is written counts on {{ $labels.instance }}", "twill datastore unlock, if nobody moves the datastore any more",
	},
	{
		"TwillWrongResources", `twill_wrong_resources > 0`, "10m", "warning",
		"{{ $value }} resources or settings cannot be understood on {{ $labels.instance }}, and what they are about is closed", "twill status on that node names them",
	},
	{
		"TwillFailures", `rate(felix_int_dataplane_failures[5m]) > 0`, "10m", "warning",
		"the kernel of {{ $labels.instance }} refuses what {{ $labels.driver }} programs", "the agent's log says what; twill doctor on that node",
	},
	{
		"TwillRepairs", `increase(twill_dataplane_repairs_total{cause!="take-over"}[1h]) > 3`, "1m", "warning",
		"somebody changes what is Twill's in the kernel of {{ $labels.instance }} ({{ $labels.driver }})", "the agent's log says what was changed: find who does it",
	},
	{
		"TwillEndpointsInError", `felix_active_local_endpoints{state="error"} > 0`, "5m", "warning",
		"{{ $value }} endpoints of {{ $labels.instance }} are closed, since they could not be programmed", "twill status on that node names them",
	},
	{
		"TwillChangesAreSlow", `histogram_quantile(0.99, sum by (instance, le) (rate(twill_change_to_kernel_seconds_bucket[10m]))) > 2`, "15m", "warning",
		"one change in a hundred takes more than two seconds into the kernel of {{ $labels.instance }}", "look for a lack of processor on that node, and at twill_dataplane_apply_seconds by driver",
	},
	{
		"TwillPoolNearlyFull", `sum by (ippool) (ipam_allocations_in_use) / sum by (ippool) (ipam_ippool_size) > 0.9`, "15m", "warning",
		"pool {{ $labels.ippool }} is more than nine tenths full", "add a pool, or see twill ipam check for addresses that nobody has",
	},
	{
		"TwillAddressesLeak", `increase(ipam_allocations_gc_reclamations[1d]) > 20`, "1m", "info",
		"pods of {{ $labels.node }} went without giving their addresses back; they were freed", "see the log of kube-controllers for which, and the kubelet's for why",
	},
	{
		"TwillControllersFail", `max by (controller) (twill_controllers_failing) > 0`, "15m", "warning",
		"controller {{ $labels.controller }} cannot do what it has to", "the log of twill-kube-controllers",
	},
	{
		"TwillNoController", `absent(twill_controllers_leader == 1)`, "10m", "warning",
		"no process of twill-kube-controllers acts", "kubectl -n kube-system get pods -l k8s-app=twill-kube-controllers",
	},
}

func alertGroups() []any {
	var out []any
	for _, a := range alerts {
		out = append(out, map[string]any{
			"alert": a.name, "expr": a.expr, "for": a.lasts, "labels": map[string]any{"severity": a.severity},
			"annotations": map[string]any{"summary": a.summary, "description": a.todo},
		})
	}
	return []any{map[string]any{"name": "twill", "rules": out}}
}

// panel is one of the dashboard: a graph, or with stat a number.
type panel struct {
	title, expr, legend, unit string
	stat                      bool
}

var panels = []panel{
	{"Nodes with all in force", `sum(twill_dataplane_settled)`, "", "short", true},
	{"Nodes without the datastore", `count(felix_resync_state < 3) or vector(0)`, "", "short", true},
	{"Wrong resources", `max(twill_wrong_resources)`, "", "short", true},
	{"Endpoints", `sum by (state) (felix_active_local_endpoints)`, "{{state}}", "short", true},
	{"A change into the kernel, 99th percentile", `histogram_quantile(0.99, sum by (instance, le) (rate(twill_change_to_kernel_seconds_bucket{instance=~"$node"}[$__rate_interval])))`, "{{instance}}", "s", false},
	{"Time of drivers, 99th percentile", `histogram_quantile(0.99, sum by (driver, le) (rate(twill_dataplane_apply_seconds_bucket{instance=~"$node"}[$__rate_interval])))`, "{{driver}}", "s", false},
	{"Packets that policy denies", `sum by (policy) (rate(twill_policy_packets_total{action="deny", instance=~"$node"}[$__rate_interval]))`, "{{policy}}", "pps", false},
	{"Packets that staged policies would decide otherwise", `sum by (policy, action) (rate(twill_staged_policy_packets_total{instance=~"$node"}[$__rate_interval]))`, "{{policy}} {{action}}", "pps", false},
	{"Repairs of what others changed", `sum by (instance, driver) (increase(twill_dataplane_repairs_total{instance=~"$node"}[$__rate_interval]))`, "{{instance}} {{driver}}", "short", false},
	{"Failures of drivers", `sum by (instance, driver) (rate(felix_int_dataplane_failures{instance=~"$node"}[$__rate_interval]))`, "{{instance}} {{driver}}", "short", false},
	{"Policies, sets and routes", `sum by (instance) (felix_active_local_policies{instance=~"$node"})`, "policies of {{instance}}", "short", false},
	{"Routes of nodes", `sum by (instance) (twill_local_routes{instance=~"$node"})`, "{{instance}}", "short", false},
	{"Addresses in use, of all", `sum by (ippool) (ipam_allocations_in_use) / sum by (ippool) (ipam_ippool_size)`, "{{ippool}}", "percentunit", false},
	{"Addresses that nobody seems to have", `sum by (node) (ipam_allocations_gc_candidates)`, "{{node}}", "short", false},
	{"Bytes through WireGuard", `sum by (instance) (rate(wireguard_bytes_rcvd{instance=~"$node"}[$__rate_interval]) + rate(wireguard_bytes_sent{instance=~"$node"}[$__rate_interval]))`, "{{instance}}", "Bps", false},
	{"Memory of agents", `process_resident_memory_bytes{instance=~"$node"} and on (instance) twill_dataplane_settled`, "{{instance}}", "bytes", false},
}

// board is a dashboard of Grafana, version 39 of its schema: numbers in a row, and graphs below, two in a row.
func board() map[string]any {
	const width, low, high = 24, 4, 8
	source := map[string]any{"type": "prometheus", "uid": "${source}"}
	var out []any
	stats := 0
	for _, p := range panels {
		if p.stat {
			stats++
		}
	}
	for i, p := range panels {
		kind, at := "stat", map[string]any{"x": i * width / stats, "y": 0, "w": width / stats, "h": low}
		if n := i - stats; !p.stat {
			kind, at = "timeseries", map[string]any{"x": n % 2 * width / 2, "y": low + n/2*high, "w": width / 2, "h": high}
		}
		out = append(out, map[string]any{
			"id": i + 1, "type": kind, "title": p.title, "gridPos": at, "datasource": source,
			"fieldConfig": map[string]any{"defaults": map[string]any{"unit": p.unit, "min": 0}, "overrides": []any{}},
			"targets":     []any{map[string]any{"refId": "A", "expr": p.expr, "legendFormat": p.legend, "datasource": source}},
		})
	}
	return map[string]any{
		"title": "Twill", "uid": "twill", "schemaVersion": 39, "editable": true, "refresh": "30s", "tags": []any{"twill", "network"},
		"time": map[string]any{"from": "now-1h", "to": "now"}, "panels": out,
		"templating": map[string]any{"list": []any{
			map[string]any{"name": "source", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
			map[string]any{
				"name": "node", "type": "query", "label": "Node", "datasource": source, "query": "label_values(twill_dataplane_settled, instance)",
				"refresh": 2, "multi": true, "includeAll": true, "allValue": ".*", "current": map[string]any{"text": "All", "value": "$__all"},
			},
		}},
	}
}
