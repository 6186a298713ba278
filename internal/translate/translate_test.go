package translate_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

var update = flag.Bool("update", false, "write testdata/*.golden anew; read them before you commit them")

// read are the objects of a file, and what is wrong in it.
func read(t *testing.T, name string) (objects []translate.Object, wrong []string) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	ours, foreign, err := api.DecodeMixed(data)
	if err != nil || len(ours) > 0 {
		t.Fatalf("%s: %v", name, err)
	}
	for _, f := range foreign {
		o, err := translate.Decode(f.JSON)
		if err != nil {
			wrong = append(wrong, err.Error())
			continue
		}
		objects = append(objects, o)
	}
	return objects, wrong
}

func say(t *testing.T, out *bytes.Buffer, r api.Resource) {
	t.Helper()
	api.Default(r)
	text, err := yaml.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(out, "---\n%s", text)
	if errs := api.Validate(r); len(errs) > 0 {
		t.Errorf("%s is not valid: %v", api.RefOf(r), errs)
	}
}

// Each testdata/*.yaml beside what it means: the resources, and after each what is wrong in its object.
func TestGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatal(err)
	}
	for _, f := range files {
		t.Run(filepath.Base(f), func(t *testing.T) {
			var out bytes.Buffer
			objects, wrong := read(t, f)
			for _, w := range wrong {
				fmt.Fprintf(&out, "# unreadable: %s\n", strings.ReplaceAll(w, "\n", "\n# "))
			}
			for _, o := range objects {
				if why := o.Nothing(); why != "" {
					fmt.Fprintf(&out, "---\n# %s %s: %s\n", o.Kind, o.Name(), why)
				}
				for _, a := range o.PassedOver() {
					fmt.Fprintf(&out, "# passed over: %s %s: annotation %s\n", o.Kind, o.Name(), a)
				}
				rs, err := translate.Resources(o)
				for _, r := range rs {
					say(t, &out, r)
				}
				if err != nil {
					fmt.Fprintf(&out, "# wrong: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n# wrong: "))
				}
			}
			out.WriteString("# implied\n")
			for _, r := range translate.Implied(objects) {
				say(t, &out, r)
			}
			golden := strings.TrimSuffix(f, "yaml") + "golden"
			if *update {
				if err := os.WriteFile(golden, out.Bytes(), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(want, out.Bytes()) {
				t.Errorf("%s says otherwise (-update writes it):\n%s", golden, &out)
			}
		})
	}
}

// The text of a selector is in every rule's comment and log: the same objects, read again, must not change it.
func TestTheSameObjectsMakeTheSameText(t *testing.T) {
	text := func() string {
		objects, _ := read(t, "testdata/policies.yaml")
		var out bytes.Buffer
		for _, o := range objects {
			rs, _ := translate.Resources(o)
			for _, r := range rs {
				say(t, &out, r)
			}
		}
		return out.String()
	}
	first := text()
	for range 50 {
		if again := text(); again != first {
			t.Fatalf("first\n%s\nthen\n%s", first, again)
		}
	}
}

func TestPlaceGivesWhatIsLackingAndNothingElse(t *testing.T) {
	pods := func(docs ...string) (out []translate.Object) {
		for _, d := range docs {
			raw, err := yaml.YAMLToJSON([]byte("{apiVersion: v1, kind: Pod, " + d + "}"))
			if err != nil {
				t.Fatal(err)
			}
			o, err := translate.Decode(raw)
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, o)
		}
		return out
	}
	endpoint := func(o translate.Object) string {
		rs, err := translate.Resources(o)
		if err != nil || len(rs) > 1 {
			t.Fatalf("%s: %d resources, %v", o.Name(), len(rs), err)
		}
		if len(rs) == 0 {
			return o.Nothing()
		}
		text, _ := json.Marshal(rs[0].(*api.WorkloadEndpoint).Spec.IPNetworks)
		return rs[0].(*api.WorkloadEndpoint).Spec.Node + " " + string(text)
	}
	const fresh = "metadata: {name: fresh}, spec: {containers: []}"
	objects := pods(
		fresh,
		"metadata: {name: placed}, spec: {nodeName: n1}",
		"metadata: {name: running}, spec: {nodeName: n1}, status: {podIP: 10.0.0.1}",
		"metadata: {name: host}, spec: {hostNetwork: true}",
		"metadata: {name: ended}, spec: {}, status: {phase: Failed}",
	)
	notes := translate.Place(objects)
	for i, want := range []string{
		`unscheduled ["198.18.`, `n1 ["198.1`, `n1 ["10.0.0.1/32"]`, "is in its host's network", "has ended",
	} {
		if got := endpoint(objects[i]); !strings.HasPrefix(got, want) {
			t.Errorf("%s: %s, want %s…", objects[i].Name(), got, want)
		}
	}
	if len(notes) != 2 || !strings.HasPrefix(notes[0], "pod default/fresh has not started; assumed: node unscheduled, addresses 198.18.") || strings.Contains(notes[1], "node") {
		t.Errorf("notes: %q", notes)
	}
	alone := pods(fresh)
	translate.Place(alone)
	if endpoint(alone[0]) != endpoint(objects[0]) {
		t.Error("other pods changed what a pod is given")
	}
	many := make([]string, 3000)
	for i := range many {
		many[i] = fmt.Sprintf("metadata: {name: p%d}, spec: {}", i)
	}
	seen := map[string]bool{}
	objects = pods(many...)
	translate.Place(objects)
	for _, o := range objects {
		e := endpoint(o)
		if seen[e] {
			t.Fatalf("%s: %s is another's already", o.Name(), e)
		}
		seen[e] = true
	}
}

// TestLinksAreNamedAsPluginsOfCloudsNameThem: upstream's agent and these plugins come to the same name, each by itself. The kernel takes no more than 15 characters.
func TestLinksAreNamedAsPluginsOfCloudsNameThem(t *testing.T) {
	for _, tt := range []struct{ prefix, namespace, pod, want string }{
		{"cali", "default", "podA", "cali7f94ce7c295"},
		{"eni", "namespace", "podname", "eni82111e10a96"},
		{"longer", "namespace", "podname", "longer82111e10a"},
		{"longerthanfifteen", "namespace", "podname", "longerthanfifteen"},
	} {
		if got := translate.LinkName(tt.prefix, tt.namespace, tt.pod); got != tt.want {
			t.Errorf("%+v is named %s", tt, got)
		}
	}
}
