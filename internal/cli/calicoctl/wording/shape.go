package wording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
)

// Shape is a resource as Go templates of calicoctl's users see it: structs are maps with the names of Go's fields, ObjectMeta and
// TypeMeta are there both by their names and with their fields among the resource's, pointers are what they point to, or nil.
type Shape map[string]any

// ShapeOf is the shape of a resource.
func ShapeOf(r api.Resource) Shape {
	out, _ := goValue(reflect.ValueOf(r)).(map[string]any) // a resource is a struct
	meta, _ := out["Metadata"].(map[string]any)
	delete(out, "Metadata")
	head := map[string]any{"Kind": r.Type().Kind, "APIVersion": r.Type().APIVersion}
	out["ObjectMeta"], out["TypeMeta"] = meta, head
	for _, m := range []map[string]any{meta, head} {
		for k, v := range m {
			out[k] = v
		}
	}
	return out
}

// goValue is a value without the types of package api.
func goValue(v reflect.Value) any {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return nil
		}
		return goValue(v.Elem())
	case reflect.Struct:
		if s, ok := v.Interface().(fmt.Stringer); ok {
			return s.String()
		}
		out := map[string]any{}
		for i := range v.NumField() {
			f := v.Type().Field(i)
			inner, ok := goValue(v.Field(i)).(map[string]any)
			switch {
			case !f.IsExported():
			case f.Anonymous && ok:
				for k, e := range inner {
					out[k] = e
				}
			default:
				out[f.Name] = goValue(v.Field(i))
			}
		}
		return out
	case reflect.Slice:
		out := make([]any, 0, v.Len())
		for i := range v.Len() {
			out = append(out, goValue(v.Index(i)))
		}
		return out
	case reflect.Map:
		out := map[string]any{}
		for _, k := range v.MapKeys() {
			out[k.String()] = goValue(v.MapIndex(k))
		}
		return out
	}
	if !v.CanInterface() {
		return nil
	}
	return v.Interface()
}

// at is what is at a path; nil if there is nothing.
func (s Shape) at(path ...string) any {
	var v any = map[string]any(s)
	for _, name := range path {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[name]
	}
	return v
}

// text is what is at a path as Go's templates write it; a struct that is not there has nothing in it.
func (s Shape) text(path ...string) string {
	if len(path) > 1 && s.at(path[:len(path)-1]...) == nil {
		return ""
	}
	return goText(s.at(path...))
}

func goText(v any) string {
	switch v := v.(type) {
	case nil:
		return "<nil>"
	case map[string]any: // only a pod selector is written so: a struct of a map and a list
		labels, _ := v["MatchLabels"].(map[string]any)
		list, _ := v["MatchExpressions"].([]any)
		return fmt.Sprintf("{%v %v}", labels, list)
	}
	return fmt.Sprint(v)
}

func isZero(v any) bool { return v == nil || reflect.ValueOf(v).IsZero() }

// joinTruncated writes the elements of a list, or the pairs of a map, in at most so many characters; 0: all of them.
func joinTruncated(v any, sep string, most int) string {
	var parts []string
	switch v := v.(type) {
	case nil:
	case []any:
		for _, e := range v {
			parts = append(parts, fmt.Sprint(e))
		}
	case map[string]any:
		for k, e := range v {
			parts = append(parts, fmt.Sprintf("%s=%v", k, e))
		}
		slices.Sort(parts)
	default:
		parts = []string{fmt.Sprint(v)}
	}
	text := strings.Join(parts, sep)
	const cut = "..."
	if most > 0 && len(text) > most {
		text = text[:most-len(cut)] + cut
	}
	return text
}

// Table writes a table as calicoctl does: each cell is padded, the last too, and an empty line stands behind it.
func Table(w io.Writer, k Kind, titles []string, rows []Shape) error {
	var cs []column
	for _, t := range titles {
		c, err := k.column(t)
		if err != nil {
			return err
		}
		cs = append(cs, c)
	}
	lines := [][]string{titles}
	for _, r := range rows {
		var line []string
		for _, c := range cs {
			line = append(line, c.cell(r))
		}
		lines = append(lines, line)
	}
	const gap, least = 3, 5
	widths := make([]int, len(cs))
	for _, l := range lines {
		for i, cell := range l {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell)+gap, least)
		}
	}
	for _, l := range lines {
		for i, cell := range l {
			fmt.Fprint(w, cell, strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(w)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// Template executes a user's template on what was found: a list of resources, and of lists with Items.
func Template(w io.Writer, text string, found []any, asNumber string) error {
	t, err := template.New("get").Funcs(template.FuncMap{
		"join":            func(v any, sep string) string { return joinTruncated(v, sep, 0) },
		"joinAndTruncate": joinTruncated,
		"config": func(name string) (string, error) {
			if strings.EqualFold(name, "asnumber") {
				return asNumber, nil
			}
			return "", fmt.Errorf("config %q: want asnumber", name)
		},
	}).Parse(text)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := t.Execute(&b, found); err != nil {
		return err
	}
	_, err = w.Write(b.Bytes())
	return err
}

// Document is a resource's document as calicoctl prints it: creationTimestamp is there though it be null, as are source and
// destination of each rule, and a node's status.
func Document(doc []byte, export bool) (json.RawMessage, error) {
	members, order, err := object(doc)
	if err != nil {
		return nil, err
	}
	meta, metaOrder, err := object(members["metadata"])
	if err != nil {
		return nil, err
	}
	delete(meta, "generation") // Kubernetes counts changes; calicoctl does not print that, from whichever datastore
	if export {
		for _, name := range []string{"namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds"} {
			delete(meta, name)
		}
	}
	if _, ok := meta["creationTimestamp"]; !ok {
		meta["creationTimestamp"] = json.RawMessage("null")
	}
	members["metadata"] = Object(meta, slices.Concat(metaNames, metaOrder))
	if spec, specOrder, err := object(members["spec"]); err == nil {
		for _, list := range []string{"ingress", "egress"} {
			if rules, ok := rulesInForm(spec[list]); ok {
				spec[list] = rules
			}
		}
		if string(members["kind"]) == `"`+api.KindFelixConfiguration+`"` {
			writeDurations(spec)
		}
		members["spec"] = Object(spec, specOrder)
	}
	if _, ok := members["status"]; !ok && string(members["kind"]) == `"`+api.KindNode+`"` {
		members["status"] = json.RawMessage("{}")
	}
	return Object(members, slices.Concat([]string{"kind", "apiVersion", "metadata", "spec"}, order, []string{"status"})), nil
}

// WriteAll writes one document as it is, and several as a sequence.
func WriteAll(w io.Writer, docs []json.RawMessage, format string) error {
	if len(docs) == 1 {
		return Write(w, docs[0], format)
	}
	whole, err := json.Marshal(docs)
	if err != nil {
		return err
	}
	return Write(w, whole, format)
}

// Write writes a document as YAML or as indented JSON.
func Write(w io.Writer, doc []byte, format string) error {
	if format == "json" {
		var b bytes.Buffer
		if err := json.Indent(&b, doc, "", "  "); err != nil {
			return err
		}
		_, err := fmt.Fprintf(w, "%s\n", b.Bytes())
		return err
	}
	text, err := yaml.JSONToYAML(doc)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

var durationName = regexp.MustCompile(`(Interval|Timeout|TTL|Delay)$`)

// writeDurations writes durations as Go does: 2m5s for 125s.
func writeDurations(spec map[string]json.RawMessage) {
	for name, value := range spec {
		var text string
		if durationName.MatchString(name) && json.Unmarshal(value, &text) == nil {
			if d, err := time.ParseDuration(text); err == nil {
				spec[name], _ = json.Marshal(d.String()) // text always encodes
			}
		}
	}
}

// metaNames is the order of metadata in Kubernetes' types.
var metaNames = []string{"name", "generateName", "namespace", "selfLink", "uid", "resourceVersion", "generation", "creationTimestamp", "deletionTimestamp", "labels", "annotations", "ownerReferences", "finalizers"}

// rulesInForm are rules of Calico's form; those of Kubernetes' form are not.
func rulesInForm(raw []byte) (json.RawMessage, bool) {
	var rules []json.RawMessage
	if len(raw) == 0 || json.Unmarshal(raw, &rules) != nil {
		return nil, false
	}
	for i, r := range rules {
		rule, order, err := object(r)
		if _, ours := rule["action"]; err != nil || !ours {
			return nil, false
		}
		for _, end := range []string{"source", "destination"} {
			if _, ok := rule[end]; !ok {
				rule[end] = json.RawMessage("{}")
				order = append(order, end)
			}
		}
		rules[i] = Object(rule, order)
	}
	out, err := json.Marshal(rules)
	return out, err == nil
}

// object reads the members of an object, and their order.
func object(raw []byte) (members map[string]json.RawMessage, order []string, err error) {
	if err := json.Unmarshal(raw, &members); err != nil {
		return nil, nil, err
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	_, err = dec.Token()
	for err == nil && dec.More() {
		var name json.Token
		var value json.RawMessage
		if name, err = dec.Token(); err == nil {
			err = dec.Decode(&value)
		}
		if text, ok := name.(string); ok {
			order = append(order, text)
		}
	}
	return members, order, err
}

// Object writes members in an order; those that it does not name are left out.
func Object(members map[string]json.RawMessage, order []string) json.RawMessage {
	b := bytes.NewBufferString("{")
	done := map[string]bool{}
	for _, name := range order {
		value, ok := members[name]
		if !ok || done[name] {
			continue
		}
		if len(done) > 0 {
			b.WriteByte(',')
		}
		done[name] = true
		text, _ := json.Marshal(name) // text always encodes
		b.Write(text)
		b.WriteByte(':')
		b.Write(value)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// Box prints a table in a frame: titles are in the middle, and so many of the first columns are flush left.
func Box(w io.Writer, titles []string, rows [][]string, left int) {
	widths := make([]int, len(titles))
	for _, row := range append([][]string{titles}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len(cell))
		}
	}
	rule := func() {
		for _, n := range widths {
			fmt.Fprint(w, "+", strings.Repeat("-", n+2))
		}
		fmt.Fprintln(w, "+")
	}
	rule()
	for i, t := range titles {
		gap := widths[i] - len(t)
		fmt.Fprintf(w, "| %s%s%s ", strings.Repeat(" ", gap/2), t, strings.Repeat(" ", gap-gap/2))
	}
	fmt.Fprintln(w, "|")
	rule()
	for _, row := range rows {
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len(cell))
			if i < left {
				cell += pad
			} else {
				cell = pad + cell
			}
			fmt.Fprint(w, "| ", cell, " ")
		}
		fmt.Fprintln(w, "|")
	}
	rule()
}
