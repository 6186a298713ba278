package show

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
)

// Format is how resources are printed.
type Format struct {
	Name    string // empty is a table
	columns []column
	tmpl    *template.Template
	// jsonpath is text and paths in turn.
	jsonpath []jsonpathPart
}

// jsonpathPart is text, or a path of a document.
type jsonpathPart struct {
	text string
	path []step // nil: text
}

// column is one of custom-columns.
type column struct {
	title string
	path  []step
}

// documents reports whether whole resources are printed, one list of them.
func (f Format) documents() bool {
	return f.Name == "yaml" || f.Name == "json" || f.tmpl != nil || f.jsonpath != nil
}

// GetFormats are what -o of get takes.
var GetFormats = []string{"ps", "wide", "yaml", "json", "name", "custom-columns=", "custom-columns-file=", "jsonpath=", "go-template=", "go-template-file="}

// ParseFormat reads the value of -o.
func ParseFormat(text string) (Format, error) {
	name, arg, has := strings.Cut(text, "=")
	switch {
	case name == "ps" && !has:
		return Format{}, nil
	case (name == "" || name == "wide" || name == "yaml" || name == "json" || name == "name") && !has:
		return Format{Name: name}, nil
	case name == "custom-columns" && arg != "":
		columns, err := parseColumns(arg)
		return Format{Name: name, columns: columns}, err
	case name == "custom-columns-file" && arg != "":
		columns, err := readColumns(arg)
		return Format{Name: "custom-columns", columns: columns}, err
	case name == "jsonpath" && arg != "":
		parts, err := parseJSONPath(arg)
		return Format{Name: name, jsonpath: parts}, err
	case name == "go-template-file" && arg != "":
		file, err := conn.ReadFile(arg)
		if err != nil {
			return Format{}, fmt.Errorf("-o go-template-file: %w", err)
		}
		name, arg = "go-template", string(file)
		fallthrough
	case name == "go-template" && arg != "":
		t, err := template.New("output").Option("missingkey=zero").Parse(arg)
		if err != nil {
			return Format{}, console.Usage("-o go-template: %v", err)
		}
		return Format{Name: name, tmpl: t}, nil
	}
	return Format{}, console.Usage("-o %q: want ps, wide, yaml, json, name, custom-columns=NAME:.path,…, custom-columns-file=FILE, go-template=…, go-template-file=FILE or jsonpath={.path}", text)
}

func parseColumns(text string) ([]column, error) {
	var out []column
	for part := range strings.SplitSeq(text, ",") {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" {
			return nil, console.Usage("-o custom-columns: %q: want TITLE:.path, such as NAME:.metadata.name", part)
		}
		steps, err := parsePath(path)
		if err != nil {
			return nil, err
		}
		out = append(out, column{title, steps})
	}
	return out, nil
}

// readColumns reads a file of two lines, titles and paths, as kubectl does.
func readColumns(file string) ([]column, error) {
	text, err := conn.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-o custom-columns-file: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	titles := strings.Fields(lines[0])
	if len(lines) != 2 || len(titles) == 0 || len(titles) != len(strings.Fields(lines[1])) {
		return nil, console.Usage("-o custom-columns-file: %s: want two lines, titles and below each its path, with blanks between them", file)
	}
	var out []column
	for i, path := range strings.Fields(lines[1]) {
		steps, err := parsePath(path)
		if err != nil {
			return nil, err
		}
		out = append(out, column{titles[i], steps})
	}
	return out, nil
}

// parseJSONPath reads text with paths and quoted text in braces:
// {.metadata.name}{"\n"}. Filters and range are go-template's.
func parseJSONPath(text string) ([]jsonpathPart, error) {
	var out []jsonpathPart
	for text != "" {
		before, in, ok := strings.Cut(text, "{")
		if before != "" {
			out = append(out, jsonpathPart{text: before})
		}
		if !ok {
			break
		}
		expr, after, closed := strings.Cut(in, "}")
		if !closed {
			return nil, console.Usage("-o jsonpath: %q: a { without its }", text)
		}
		text = after
		if strings.HasPrefix(expr, `"`) {
			quoted, err := strconv.Unquote(expr)
			if err != nil {
				return nil, console.Usage("-o jsonpath: {%s}: want quoted text", expr)
			}
			out = append(out, jsonpathPart{text: quoted})
			continue
		}
		if !strings.HasPrefix(expr, ".") && !strings.HasPrefix(expr, "[") {
			return nil, console.Usage("-o jsonpath: {%s}: want a path such as {.items[*].metadata.name}; for more use -o go-template", expr)
		}
		path, err := parsePath(expr)
		if err != nil {
			return nil, err
		}
		out = append(out, jsonpathPart{path: append([]step{}, path...)})
	}
	return out, nil
}

func (f Format) printPaths(w io.Writer, doc []byte) error {
	v, err := resources.Tree(doc)
	if err != nil {
		return err
	}
	for _, p := range f.jsonpath {
		text := p.text
		if p.path != nil {
			var cells []string
			for _, v := range at(v, p.path) {
				cells = append(cells, resources.Cell(v))
			}
			text = strings.Join(cells, " ")
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

// Print writes what was found; single: it was asked for by name.
func Print(c console.Stdio, fs []Found, o Options, single bool) error {
	switch {
	case o.Format.documents():
		return printDocuments(c, fs, o, single)
	case o.Format.Name == "name":
		for _, f := range fs {
			fmt.Fprintln(c.Out, resources.Short(f.Ref))
		}
		return nil
	case len(fs) == 0:
		Nothing(c, o)
		return nil
	}
	printTables(c, fs, o)
	return nil
}

func printDocuments(c console.Stdio, fs []Found, o Options, single bool) error {
	docs := []json.RawMessage{}
	var unreadable []error
	for _, f := range fs {
		if f.Doc == nil {
			unreadable = append(unreadable, errors.New(f.Note))
			continue
		}
		docs = append(docs, o.Document(f))
	}
	text, err := o.together(docs, single)
	if err != nil {
		return err
	}
	switch {
	case o.Format.jsonpath != nil:
		err = o.Format.printPaths(c.Out, text)
	case o.Format.tmpl != nil:
		err = execute(c.Out, o.Format.tmpl, text)
	default:
		if text, err = Render(o.Format.Name, text); err == nil {
			_, err = c.Out.Write(text)
		}
	}
	return errors.Join(append(unreadable, err)...)
}

// listOf is a list of resources, its fields in upstream's order.
type listOf struct {
	Kind       string            `json:"kind"`
	APIVersion string            `json:"apiVersion"`
	Metadata   listMeta          `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

type listMeta struct {
	ResourceVersion string `json:"resourceVersion,omitempty"`
}

// together makes one document of several, in the forms that calicoctl writes: the list of a kind if that was asked for, else a
// sequence. Templates and paths get a list in any case, so that one of them is good for both.
func (o Options) together(docs []json.RawMessage, single bool) ([]byte, error) {
	switch {
	case single && len(docs) == 1:
		return docs[0], nil
	case o.List == "" && o.Format.tmpl == nil && o.Format.jsonpath == nil:
		return json.Marshal(docs)
	}
	l := listOf{Kind: o.List + "List", APIVersion: api.GroupVersion, Items: docs}
	if o.List != "" && !o.Export {
		l.Metadata.ResourceVersion = strconv.FormatInt(o.as, 10)
	}
	return json.Marshal(l)
}

// Document is a resource as it is printed.
func (o Options) Document(f Found) []byte {
	if !o.Export {
		return f.Doc
	}
	doc, err := resources.WithMetadata(f.Doc, func(meta map[string]json.RawMessage) {
		for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "selfLink", "managedFields", "ownerReferences"} {
			delete(meta, name)
		}
	})
	if err != nil { // metadata is no object, so there is nothing to take away
		return f.Doc
	}
	return doc
}

func execute(w io.Writer, t *template.Template, doc []byte) error {
	v, err := resources.Tree(doc)
	if err != nil {
		return err
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("-o go-template: %w", err)
	}
	return nil
}

// Render writes JSON as JSON for people, or as YAML.
func Render(format string, doc []byte) ([]byte, error) {
	if format == "yaml" {
		return yaml.JSONToYAML(doc)
	}
	var b bytes.Buffer
	err := json.Indent(&b, doc, "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), err
}

func printTables(c console.Stdio, fs []Found, o Options) {
	w := tabwriter.NewWriter(c.Out, 0, 0, 2, ' ', 0)
	last := ""
	for _, f := range fs {
		if f.kind.Kind != last && (last == "" || o.columns == nil) {
			if last != "" {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, strings.Join(o.Header(f), "\t"))
		}
		last = f.kind.Kind
		fmt.Fprintln(w, strings.Join(o.Row(f), "\t"))
	}
	_ = w.Flush()
	for _, f := range fs {
		if f.Note != "" && o.Format.Name != "wide" { // wide has a column for it
			fmt.Fprintf(c.Err, "%s: %s\n", resources.Short(f.Ref), f.Note)
		}
	}
}

// none stands in a column of custom-columns where a resource has nothing.
const none = "<none>"

func (o Options) Header(f Found) []string {
	if o.columns == nil {
		return header(f.kind, o)
	}
	var out []string
	for _, c := range o.columns {
		out = append(out, c.title)
	}
	return out
}

func (o Options) Row(f Found) []string {
	if o.columns == nil {
		return row(f, o)
	}
	doc := f.Tree()
	var out []string
	for _, c := range o.columns {
		var cells []string
		for _, v := range at(doc, c.path) {
			cells = append(cells, resources.Cell(v))
		}
		if len(cells) == 0 {
			cells = []string{none}
		}
		out = append(out, strings.Join(cells, ","))
	}
	return out
}
