// Package monitoring holds tests of the dashboard and the alerts by Prometheus' own parser. It runs bin/twill, and imports nothing of it:
// the parser wants other versions of what both depend on.
package monitoring

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"sigs.k8s.io/yaml"
)

// twill is what the binary prints; it must succeed.
func twill(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "../../bin/twill", append([]string{"kube", "monitoring"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v (make build makes bin/twill): %s", err, out)
	}
	return string(out)
}

// metric is what docs/metrics.md, which a test holds to what processes serve, says of one.
type metric struct {
	kind   string
	labels []string
}

// reference reads the page.
func reference(t *testing.T) map[string]metric {
	t.Helper()
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]metric{"process_resident_memory_bytes": {"gauge", []string{"instance"}}}
	for _, m := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (\\w+) \\| ([\\w, ]*) \\|").FindAllStringSubmatch(string(page), -1) {
		name, of := m[1], metric{m[2], append([]string{"instance"}, strings.FieldsFunc(m[3], func(r rune) bool { return r == ',' || r == ' ' })...)}
		if of.kind == "histogram" {
			name, of.labels = name+"_bucket", append(of.labels, "le")
		}
		out[name] = of
	}
	if len(out) < 30 {
		t.Fatalf("%d metrics are on the page", len(out))
	}
	return out
}

// judge finds what is wrong with an expression: what does not parse, metrics and labels that nobody serves, and rates of what does not only grow.
func judge(t *testing.T, known map[string]metric, expr string) {
	t.Helper()
	expr = strings.NewReplacer("$__rate_interval", "5m", "$node", ".*").Replace(expr)
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		t.Errorf("%s: %v", expr, err)
		return
	}
	has := map[string]bool{} // labels of all metrics in it
	parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
		v, is := n.(*parser.VectorSelector)
		if !is {
			return nil
		}
		m, is := known[v.Name]
		if !is {
			t.Errorf("%s: nobody serves %s", expr, v.Name)
			return nil
		}
		for _, l := range m.labels {
			has[l] = true
		}
		for _, l := range v.LabelMatchers {
			if l.Name != "__name__" && !slices.Contains(m.labels, l.Name) {
				t.Errorf("%s: %s has no label %s", expr, v.Name, l.Name)
			}
		}
		_, ranged := path[len(path)-1].(*parser.MatrixSelector)
		if grows := m.kind != "gauge"; grows != ranged {
			t.Errorf("%s: %s is a %s, and in a rate or not: %v", expr, v.Name, m.kind, ranged)
		}
		return nil
	})
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		if a, is := n.(*parser.AggregateExpr); is {
			for _, l := range a.Grouping {
				if !has[l] {
					t.Errorf("%s: by %s, which no metric of it has", expr, l)
				}
			}
		}
		return nil
	})
}

func TestEachPanelAsksForWhatIsServed(t *testing.T) {
	known := reference(t)
	var board struct {
		Panels []struct {
			Title   string
			GridPos struct{ X, Y, W, H int }
			Targets []struct{ Expr, LegendFormat string }
		}
	}
	if err := json.Unmarshal([]byte(twill(t, "--dashboard")), &board); err != nil {
		t.Fatal(err)
	}
	taken := map[[2]int]string{}
	for _, p := range board.Panels {
		judge(t, known, p.Targets[0].Expr)
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" || x >= 24 {
					t.Fatalf("%q lies over %q, or out of the 24 columns", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
	if len(board.Panels) < 10 {
		t.Errorf("%d panels", len(board.Panels))
	}
}

func TestEachAlertAsksForWhatIsServed(t *testing.T) {
	known := reference(t)
	var rules struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.Unmarshal([]byte(twill(t, "--rules")), &rules); err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	inText := regexp.MustCompile(`\$labels\.(\w+)`)
	for _, r := range rules.Groups[0].Rules {
		judge(t, known, r.Expr)
		if names[r.Alert] || r.Labels["severity"] == "" || r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.For == "" {
			t.Errorf("%s is there twice, or says too little: %+v", r.Alert, r)
		}
		names[r.Alert] = true
		for _, m := range inText.FindAllStringSubmatch(r.Annotations["summary"]+r.Annotations["description"], -1) {
			if e, err := parser.NewParser(parser.Options{}).ParseExpr(r.Expr); err == nil && !leaves(known, e, m[1]) {
				t.Errorf("%s says $labels.%s, which its expression has not", r.Alert, m[1])
			}
		}
	}
	for _, name := range []string{"TwillNotInForce", "TwillDatastoreAway", "TwillPoolNearlyFull"} {
		if !names[name] {
			t.Errorf("no alert %s among %v", name, slices.Sorted(maps.Keys(names)))
		}
	}
}

// leaves reports whether what an expression gives has a label: of its outermost aggregation, or of its metrics.
func leaves(known map[string]metric, e parser.Node, label string) (has bool) {
	aggregated := false
	parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.AggregateExpr:
			if !aggregated {
				has = slices.Contains(n.Grouping, label)
			}
			aggregated = true
		case *parser.VectorSelector:
			if !aggregated {
				has = slices.Contains(known[n.Name].labels, label)
			}
		}
		return nil
	})
	return has
}

// TestAllOfItIsOneManifest: what the operator and Grafana's sidecar take is what the other forms are.
func TestAllOfItIsOneManifest(t *testing.T) {
	board := twill(t, "--dashboard")
	kinds := map[string]int{}
	for doc := range strings.SplitSeq(twill(t, "-n", "calico-system"), "---\n") {
		var o struct {
			Kind     string
			Metadata struct {
				Namespace string
				Labels    map[string]string
			}
			Data map[string]string
			Spec struct{ Groups []any }
		}
		if err := yaml.Unmarshal([]byte(doc), &o); err != nil {
			t.Fatal(err)
		}
		if o.Kind == "" {
			continue
		}
		if kinds[o.Kind]++; o.Metadata.Namespace != "calico-system" {
			t.Errorf("%s is in %s", o.Kind, o.Metadata.Namespace)
		}
		switch o.Kind {
		case "ConfigMap":
			var is, want any
			if json.Unmarshal([]byte(o.Data["twill.json"]), &is) != nil || json.Unmarshal([]byte(board), &want) != nil || !equal(is, want) || o.Metadata.Labels["grafana_dashboard"] == "" {
				t.Errorf("the ConfigMap is another dashboard, or has no label: %v", o.Metadata.Labels)
			}
		case "PrometheusRule":
			if len(o.Spec.Groups) != 1 {
				t.Errorf("%d groups", len(o.Spec.Groups))
			}
		}
	}
	if kinds["PodMonitor"] != 2 || kinds["PrometheusRule"] != 1 || kinds["ConfigMap"] != 1 {
		t.Errorf("%v", kinds)
	}
}

func equal(a, b any) bool {
	x, _ := json.Marshal(a)
	y, _ := json.Marshal(b)
	return string(x) == string(y)
}
