package show

import (
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/selector"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
)

// scope says which resources a command means: the flags that several have.
type scope struct {
	Namespace      string
	All            bool // of all namespaces
	labels, fields string
}

func (o *scope) AddNamespace(cmd *cobra.Command) {
	cmd.Flags().StringVarP(&o.Namespace, "namespace", "n", "default", "namespace of the resources")
}

func (o *scope) AddFilters(cmd *cobra.Command) {
	cmd.Flags().BoolVarP(&o.All, "all-namespaces", "A", false, "resources of all namespaces")
	cmd.Flags().StringVarP(&o.labels, "selector", "l", "", `only those whose own labels match: a=b,c!=d,e in (x,y) or app == "web" && has(tier)`)
	cmd.Flags().StringVar(&o.fields, "field-selector", "", "only those with these fields: metadata.name=web,spec.node!=h1")
}

// filtered reports whether selectors were given.
func (o *scope) filtered() bool { return o.labels != "" || o.fields != "" }

// filter decides which resources are meant.
type filter struct {
	labels func(map[string]string) bool
	fields []fieldTest
}

type fieldTest struct {
	path  []console.Step
	value string
	not   bool
}

func (o *scope) Filter() (f filter, err error) {
	if f.labels, err = parseLabels(o.labels); err != nil {
		return f, err
	}
	f.fields, err = parseFields(o.fields)
	return f, err
}

// Keeps reports whether f is meant. A resource that cannot be read has neither
// labels nor fields, but a name.
func (t filter) Keeps(f Found) bool {
	var of map[string]string
	if f.Res != nil {
		of = f.Res.Meta().Labels
	}
	if t.labels != nil && !t.labels(of) {
		return false
	}
	if len(t.fields) == 0 {
		return true
	}
	doc := f.Tree()
	for _, test := range t.fields {
		if test.holds(doc) == test.not {
			return false
		}
	}
	return true
}

// holds reports whether the field has the value; a list has it if an element has.
func (t fieldTest) holds(doc any) bool {
	vs := console.At(doc, t.path)
	if len(vs) == 0 {
		return t.value == ""
	}
	for _, v := range vs {
		if l, ok := v.([]any); ok && slices.ContainsFunc(l, func(e any) bool { return resources.Cell(e) == t.value }) {
			return true
		}
		if resources.Cell(v) == t.value {
			return true
		}
	}
	return false
}

func parseFields(text string) ([]fieldTest, error) {
	var out []fieldTest
	for _, part := range splitOutside(text) {
		var t fieldTest
		name, value, ok := strings.Cut(part, "=")
		if name, t.not = strings.CutSuffix(name, "!"); !ok || strings.TrimSpace(name) == "" {
			return nil, console.Usage("--field-selector %q: want FIELD=VALUE or FIELD!=VALUE, with commas between them: metadata.name=web,spec.node!=h1", part)
		}
		t.value = strings.TrimSpace(strings.TrimPrefix(value, "="))
		var err error
		if t.path, err = console.ParsePath(name); err != nil {
			return nil, err
		}
		out = append(out, t)
	}
	return out, nil
}

// parseLabels reads Calico's selector language, or kubectl's. No text means
// something in both, so nothing is guessed.
func parseLabels(text string) (func(map[string]string) bool, error) {
	own, err := selector.Parse(text)
	if err == nil {
		return own.Match, nil
	}
	var at *selector.Error
	if errors.As(err, &at) && strings.ContainsAny(text, `"'&|{`) { // kubectl's has none of these
		return nil, console.Usage("-l %v", err)
	}
	kube, err := labels.Parse(text)
	if err != nil {
		return nil, console.Usage(`-l %q: %v; want kubectl's a=b,c!=d,e in (x,y),f notin (z),has,!hasnot or a selector such as app == "web" && has(tier)`, text, err)
	}
	return func(of map[string]string) bool { return kube.Matches(labels.Set(of)) }, nil
}

// splitOutside splits at commas that are not in parentheses.
func splitOutside(text string) []string {
	var out []string
	depth, from := 0, 0
	for i := range len(text) {
		switch text[i] {
		case '(':
			depth++
		case ')':
			depth--
		case ',':
			if depth == 0 {
				out, from = append(out, strings.TrimSpace(text[from:i])), i+1
			}
		}
	}
	if last := strings.TrimSpace(text[from:]); last != "" {
		out = append(out, last)
	}
	return out
}

// Tree is the document as users see it; nil if it cannot be read.
func (f Found) Tree() any {
	if f.Doc == nil {
		name := map[string]any{"name": f.Ref.Name}
		if f.Ref.Namespace != "" {
			name["namespace"] = f.Ref.Namespace
		}
		return map[string]any{"kind": f.Ref.Kind, "apiVersion": api.GroupVersion, "metadata": name}
	}
	v, err := resources.Tree(f.Doc)
	if err != nil {
		return nil
	}
	return v
}
