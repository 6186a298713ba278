package api

import (
	"errors"
	"strings"
	"testing"
)

const head = "apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata: {name: web, namespace: prod}\n"

const felixHead = "apiVersion: projectcalico.org/v3\nkind: FelixConfiguration\nmetadata: {name: default}\nspec: "

func TestUsersFilesAreReadStrictly(t *testing.T) {
	for _, tt := range []struct {
		name, in   string
		path, says string // of the first error; both empty: none
		suggestion string
	}{
		{name: "a plain policy", in: head + "spec: {selector: all()}"},
		{name: "what comes with a later issue but is stored", in: "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkPolicy\nmetadata: {name: a}\nspec: {doNotTrack: true, applyOnForward: true}"},
		{name: "a mistyped field", in: head + "spec: {ingres: []}", path: "spec.ingres", says: "unknown field", suggestion: "ingress"},
		{name: "a field in another case", in: head + "spec: {Selector: all()}"},
		{name: "a field in two cases", in: head + "spec: {selector: all(), SELECTOR: none()}", path: "spec.selector", says: "is there already, as SELECTOR"},
		{name: "what a server notes about its own work", in: "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: a, managedFields: [{manager: kubectl}], selfLink: /a, deletionGracePeriodSeconds: null, creationTimestamp: null}"},
		{name: "metadata that nobody has", in: "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: a, managedField: []}", path: "metadata.managedField", says: "unknown field"},
		{name: "a mistyped field of a rule", in: head + "spec: {ingress: [{action: Allow}, {action: Allow, source: {selectr: a}}]}", path: "spec.ingress[1].source.selectr", says: "unknown", suggestion: "selector"},
		{name: "a field that resembles none", in: head + "spec: {weather: fine}", path: "spec.weather", says: "here can be tier, order"},
		{name: "a field that would have to be honoured", in: felixHead + "{istioAmbientMode: Enabled}", path: "spec.istioAmbientMode", says: "no packet is marked for Istio"},
		{name: "AWS's check of sources", in: felixHead + "{awsSrcDstCheck: Disable}", path: "spec.awsSrcDstCheck", says: "the settings of instances in AWS stay as they are"},
		{name: "metrics for anybody who shows a certificate", in: felixHead + "{prometheusMetricsClientAuth: RequireAnyClientCert}", path: "spec.prometheusMetricsClientAuth", says: "prometheusMetricsCAFile"},
		{name: "a field in a List that would have to be honoured", in: "apiVersion: v1\nkind: List\nitems: [{apiVersion: projectcalico.org/v3, kind: FelixConfiguration, metadata: {name: a}, spec: {istioAmbientMode: Enabled}}]", path: "items[0].spec.istioAmbientMode", says: "Calico has this field"},
		{name: "http, of which there is a warning", in: head + "spec: {ingress: [{action: Allow, http: {methods: [GET]}}]}"},
		{name: "fields that Calico has and that say nothing", in: felixHead + "{bpfLogLevel: '', bpfLogFilters: {}, bpfDSROptoutCIDRs: [], iptablesBackend: null}"},
		{name: "an empty field that nobody has", in: felixHead + "{bpfLogLevl: ''}", path: "spec.bpfLogLevl", says: "unknown field", suggestion: "bpfLogLevel"},
		{name: "a kind that Calico has", in: "apiVersion: projectcalico.org/v3\nkind: IPAMBlock\nmetadata: {name: a}", path: "kind", says: "Calico has this kind"},
		{name: "a mistyped kind", in: "apiVersion: projectcalico.org/v3\nkind: NetworkPolcy\nmetadata: {name: a}", path: "kind", says: "unknown", suggestion: "NetworkPolicy"},
		{name: "Kubernetes' policy of the same name", in: "apiVersion: networking.k8s.io/v1\nkind: NetworkPolicy\nmetadata: {name: a}", path: "apiVersion", says: "want projectcalico.org/v3"},
		{name: "no version", in: "kind: Tier\nmetadata: {name: a}", path: "apiVersion", says: "missing"},
		{name: "no kind", in: "a: b", path: "kind", says: "missing"},
		{name: "no object", in: "a", says: "want an object"},
		{name: "no object in a sequence", in: "- a\n- b", path: "[0]", says: "want an object"},
		{name: "a key twice in YAML", in: head + "spec: {selector: a, selector: b}", says: "already set"},
		{name: "a key twice in JSON", in: `{"kind":"Tier","apiVersion":"projectcalico.org/v3","metadata":{"name":"a","name":"b"}}`, says: "metadata.name: is there more than once"},
		{name: "YAML that is none", in: "a: [", says: "line 1"},
		{name: "a wrong type", in: head + "spec: {order: first}", path: "spec.order", says: "want a number, got \"first\""},
		{name: "a port too large", in: head + "spec: {ingress: [{action: Allow, destination: {ports: [70000]}}]}", path: "spec.ingress[0].destination.ports[0]", says: "0–65535"},
		{name: "null in a list", in: head + "spec: {ingress: [null]}", path: "spec.ingress[0]", says: "null"},
		{name: "an error within a List", in: "apiVersion: v1\nkind: List\nitems: [{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: a}, spec: {ordr: 1}}]", path: "items[0].spec.ordr", says: "unknown", suggestion: "order"},
		{name: "a List without items", in: "apiVersion: v1\nkind: List", path: "items", says: "is missing: want a list"},
		{name: "a List whose items are none", in: "apiVersion: v1\nkind: List\nitems: {}", path: "items", says: "want a list"},
		{name: "a List with a mistyped field", in: "apiVersion: v1\nkind: List\nitmes: []\nitems: []", path: "itmes", says: "unknown field", suggestion: "items"},
		{name: "another kind in the list of one", in: "apiVersion: projectcalico.org/v3\nkind: TierList\nitems: [{kind: Node, metadata: {name: a}}]", path: "items[0].kind", says: `is "Node" in a TierList`},
		{name: "an error within a sequence", in: "- {apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: a}, spec: {ordr: 1}}", path: "[0].spec.ordr", says: "unknown", suggestion: "order"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(tt.in))
			if tt.says == "" {
				if err != nil || len(docs) != 1 {
					t.Fatalf("%d documents, %v", len(docs), err)
				}
				return
			}
			var e *FieldError
			if !errors.As(err, &e) {
				t.Fatalf("no FieldError in %v", err)
			}
			if e.Path != tt.path || !strings.Contains(e.Reason, tt.says) || e.Suggestion != tt.suggestion {
				t.Errorf("got %q, %q, %q", e.Path, e.Reason, e.Suggestion)
			}
			if !strings.Contains(err.Error(), tt.suggestion) {
				t.Errorf("the error does not suggest: %v", err)
			}
		})
	}
}

// TestSeveralResourcesInOneDocument are the forms in which calicoctl, kubectl and Twill print more than one.
func TestSeveralResourcesInOneDocument(t *testing.T) {
	const a = "apiVersion: projectcalico.org/v3, kind: Tier, "
	for _, tt := range []struct{ name, in string }{
		{"the list of a kind", "apiVersion: projectcalico.org/v3\nkind: TierList\nmetadata: {resourceVersion: '7'}\nitems: [{" + a + "metadata: {name: a}}, {" + a + "metadata: {name: b}}]"},
		{"the list of a kind, whose items do not say what they are", "apiVersion: projectcalico.org/v3\nkind: TierList\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]"},
		{"a List of Kubernetes", "apiVersion: v1\nkind: List\nmetadata: {resourceVersion: '', selfLink: ''}\nitems: [{" + a + "metadata: {name: a}}, {" + a + "metadata: {name: b}}]"},
		{"a sequence", "- {" + a + "metadata: {name: a}}\n- {" + a + "metadata: {name: b}}"},
		{"a sequence of lists", "- {apiVersion: v1, kind: List, items: [{" + a + "metadata: {name: a}}]}\n- {" + a + "metadata: {name: b}}"},
		{"sequences in JSON, one behind the other", `[{"apiVersion":"projectcalico.org/v3","kind":"Tier","metadata":{"name":"a"}}]` + "\n" + `[{"apiVersion":"projectcalico.org/v3","kind":"Tier","metadata":{"name":"b"}}]`},
		{"an empty list beside others", "apiVersion: projectcalico.org/v3\nkind: NodeList\nmetadata: {}\nitems: null\n---\n- {" + a + "metadata: {name: a}}\n- {" + a + "metadata: {name: b}}"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(tt.in))
			if err != nil || len(docs) != 2 || docs[0].Resource.Meta().Name != "a" || docs[1].Resource.Meta().Name != "b" || docs[0].Resource.Type().Kind != KindTier {
				t.Errorf("%d documents, %v", len(docs), err)
			}
		})
	}
}

// TestYAMLTraps pins what YAML 1.1 makes of bare words: text that is not text is
// refused; a number that is wanted is what YAML says it is.
func TestYAMLTraps(t *testing.T) {
	label := func(v string) string {
		return "apiVersion: projectcalico.org/v3\nkind: NetworkSet\nmetadata: {name: a, namespace: b, labels: {l: " + v + "}}"
	}
	for _, v := range []string{"on", "off", "yes", "no", "y", "n", "true", "012", "1", "1.5", "0x10", "1e3", "null", "~", "-1"} {
		if _, err := Decode([]byte(label(v))); err == nil {
			t.Errorf("label %s was taken for text", v)
		} else if v != "null" && v != "~" && !strings.Contains(err.Error(), "quotes") {
			t.Errorf("label %s: the error does not say what to do: %v", v, err)
		}
	}
	for _, v := range []string{`"on"`, `'012'`, "web", "1.2.3", "v1"} {
		docs, err := Decode([]byte(label(v)))
		if err != nil || docs[0].Resource.Meta().Labels["l"] != strings.Trim(v, `"'`) {
			t.Errorf("label %s: %+v, %v", v, docs, err)
		}
	}
	for in, want := range map[string]string{"012": "10", "80:90": "80:90", `"80:90"`: "80:90", "0x50": "80", "http": "http"} {
		docs, err := Decode([]byte(head + "spec: {ingress: [{action: Allow, protocol: TCP, destination: {ports: [" + in + "]}}]}"))
		if err != nil {
			t.Errorf("port %s: %v", in, err)
			continue
		}
		if got := docs[0].Resource.(*NetworkPolicy).Spec.Ingress[0].Destination.Ports[0].String(); got != want {
			t.Errorf("port %s is %s, want %s", in, got, want)
		}
	}
}

func TestDocumentsArePartedAndKnowTheirLines(t *testing.T) {
	tier := func(n string) string {
		return "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata:\n  name: " + n + "\n"
	}
	for _, tt := range []struct {
		name, in, names string
		lines           []int
	}{
		{"one", tier("a"), "a", []int{1}},
		{"two", tier("a") + "---\n" + tier("b"), "ab", []int{1, 6}},
		{"empty ones between", "---\n# nothing\n---\n" + tier("a") + "---\n---\n" + tier("b") + "---\n", "ab", []int{4, 10}},
		{"an end marker", tier("a") + "...\n---\n" + tier("b"), "ab", []int{1, 7}},
		{"Windows' line ends", strings.ReplaceAll(tier("a")+"---\n"+tier("b"), "\n", "\r\n"), "ab", []int{1, 6}},
		{"content on the marker's line", "--- {apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: a}}\n", "a", []int{1}},
		{"dashes within text", "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata:\n  name: a\n  annotations:\n    n: |\n      x\n      ---\n      y\n", "a", []int{1}},
		{"JSON one behind the other", "{\"apiVersion\":\"projectcalico.org/v3\",\n\t\"kind\":\"Tier\",\"metadata\":{\"name\":\"a\"}}\n{\"apiVersion\":\"projectcalico.org/v3\",\"kind\":\"Tier\",\"metadata\":{\"name\":\"b\"}}", "ab", []int{1, 3}},
		{"YAML in braces", "{apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: a}}", "a", []int{1}},
		{"a List", "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: a}}\n- {apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: b}}", "ab", []int{1, 1}},
		{"a TierList", "apiVersion: projectcalico.org/v3\nkind: TierList\nitems:\n- {apiVersion: projectcalico.org/v3, kind: Tier, metadata: {name: a}}", "a", []int{1}},
		{"nothing", "# nothing\n", "", nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			var names strings.Builder
			for i, d := range docs {
				names.WriteString(d.Resource.Meta().Name)
				if i < len(tt.lines) && d.Line != tt.lines[i] {
					t.Errorf("document %d is on line %d, want %d", i, d.Line, tt.lines[i])
				}
			}
			if names.String() != tt.names {
				t.Errorf("got %q, want %q", names.String(), tt.names)
			}
		})
	}
}

func TestWhatCanBeReadIsReturnedWithTheErrors(t *testing.T) {
	docs, err := Decode([]byte(head + "spec: {x: 1, z: 2}\n---\n" + head + "---\na: ["))
	var all FieldErrors
	if !errors.As(err, &all) || len(all) != 3 || len(docs) != 1 || docs[0].Index != 1 || all[2].Doc != 2 {
		t.Errorf("%d documents, errors %v", len(docs), err)
	}
	if !strings.Contains(all[2].Reason, "line 10") && !strings.Contains(all[2].Reason, "line 11") {
		t.Errorf("YAML's line is not that of the file: %s", all[2].Reason)
	}
	if want := "NetworkPolicy prod/web (line 1): spec.x: "; !strings.HasPrefix(err.Error(), want) {
		t.Errorf("got %q, want it to begin with %q", err, want)
	}
}
