package show

import (
	"errors"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

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
	labels *selector.Selector
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
	var labels map[string]string
	if f.Res != nil {
		labels = f.Res.Meta().Labels
	}
	if !t.labels.Match(labels) {
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
func parseLabels(text string) (*selector.Selector, error) {
	own, err := selector.Parse(text)
	if err == nil {
		return own, nil
	}
	var terms []string
	for _, part := range splitOutside(text) {
		term, ok := kubectlTerm(part)
		if !ok {
			var at *selector.Error
			if looksKube := !strings.ContainsAny(text, `"'&|{`); !looksKube && errors.As(err, &at) {
				return nil, console.Usage("-l %v", err)
			}
			return nil, console.Usage(`-l %q: want kubectl's a=b,c!=d,e in (x,y),has,!hasnot or a selector such as app == "web" && has(tier)`, part)
		}
		terms = append(terms, term)
	}
	sel, err := selector.Parse(strings.Join(terms, " && "))
	if err != nil {
		return nil, console.Usage("-l %v", err)
	}
	return sel, nil
}

var (
	kubeSet   = regexp.MustCompile(`^(\S+)\s+(in|notin)\s*\(([^()]*)\)$`)
	kubeEqual = regexp.MustCompile(`^([^\s=!]+)\s*(==|=|!=)\s*(\S*)$`)
	kubeHas   = regexp.MustCompile(`^(!?)\s*([^\s=!(){}]+)$`)
	kubeValue = regexp.MustCompile(`^[-A-Za-z0-9_./]*$`)
)

// kubectlTerm says one requirement of kubectl's in our language.
func kubectlTerm(part string) (string, bool) {
	if m := kubeSet.FindStringSubmatch(part); m != nil {
		var values []string
		for v := range strings.SplitSeq(m[3], ",") {
			if v = strings.TrimSpace(v); !kubeValue.MatchString(v) {
				return "", false
			}
			values = append(values, `"`+v+`"`)
		}
		op := map[string]string{"in": " in ", "notin": " not in "}[m[2]]
		return m[1] + op + "{" + strings.Join(values, ", ") + "}", true
	}
	if m := kubeEqual.FindStringSubmatch(part); m != nil && kubeValue.MatchString(m[3]) {
		op := " == "
		if m[2] == "!=" {
			op = " != "
		}
		return m[1] + op + `"` + m[3] + `"`, true
	}
	if m := kubeHas.FindStringSubmatch(part); m != nil {
		return m[1] + "has(" + m[2] + ")", true
	}
	return "", false
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
