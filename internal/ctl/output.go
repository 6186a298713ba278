package ctl

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
)

// format is how resources are printed.
type format struct {
	name    string // empty is a table
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
func (f format) documents() bool {
	return f.name == "yaml" || f.name == "json" || f.tmpl != nil || f.jsonpath != nil
}

// getFormats are what -o of get takes.
var getFormats = []string{"ps", "wide", "yaml", "json", "name", "custom-columns=", "custom-columns-file=", "jsonpath=", "go-template=", "go-template-file="}

// parseFormat reads the value of -o.
func parseFormat(text string) (format, error) {
	name, arg, has := strings.Cut(text, "=")
	switch {
	case name == "ps" && !has:
		return format{}, nil
	case (name == "" || name == "wide" || name == "yaml" || name == "json" || name == "name") && !has:
		return format{name: name}, nil
	case name == "custom-columns" && arg != "":
		columns, err := parseColumns(arg)
		return format{name: name, columns: columns}, err
	case name == "custom-columns-file" && arg != "":
		columns, err := readColumns(arg)
		return format{name: "custom-columns", columns: columns}, err
	case name == "jsonpath" && arg != "":
		parts, err := parseJSONPath(arg)
		return format{name: name, jsonpath: parts}, err
	case name == "go-template-file" && arg != "":
		file, err := readFile(arg)
		if err != nil {
			return format{}, fmt.Errorf("-o go-template-file: %w", err)
		}
		name, arg = "go-template", string(file)
		fallthrough
	case name == "go-template" && arg != "":
		t, err := template.New("output").Option("missingkey=zero").Parse(arg)
		if err != nil {
			return format{}, usage("-o go-template: %v", err)
		}
		return format{name: name, tmpl: t}, nil
	}
	return format{}, usage("-o %q: want ps, wide, yaml, json, name, custom-columns=NAME:.path,…, custom-columns-file=FILE, go-template=…, go-template-file=FILE or jsonpath={.path}", text)
}

func parseColumns(text string) ([]column, error) {
	var out []column
	for part := range strings.SplitSeq(text, ",") {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" {
			return nil, usage("-o custom-columns: %q: want TITLE:.path, such as NAME:.metadata.name", part)
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
	text, err := readFile(file)
	if err != nil {
		return nil, fmt.Errorf("-o custom-columns-file: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	titles := strings.Fields(lines[0])
	if len(lines) != 2 || len(titles) == 0 || len(titles) != len(strings.Fields(lines[1])) {
		return nil, usage("-o custom-columns-file: %s: want two lines, titles and below each its path, with blanks between them", file)
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
			return nil, usage("-o jsonpath: %q: a { without its }", text)
		}
		text = after
		if strings.HasPrefix(expr, `"`) {
			quoted, err := strconv.Unquote(expr)
			if err != nil {
				return nil, usage("-o jsonpath: {%s}: want quoted text", expr)
			}
			out = append(out, jsonpathPart{text: quoted})
			continue
		}
		if !strings.HasPrefix(expr, ".") && !strings.HasPrefix(expr, "[") {
			return nil, usage("-o jsonpath: {%s}: want a path such as {.items[*].metadata.name}; for more use -o go-template", expr)
		}
		path, err := parsePath(expr)
		if err != nil {
			return nil, err
		}
		out = append(out, jsonpathPart{path: append([]step{}, path...)})
	}
	return out, nil
}

func (f format) printPaths(w io.Writer, doc []byte) error {
	v, err := tree(doc)
	if err != nil {
		return err
	}
	for _, p := range f.jsonpath {
		text := p.text
		if p.path != nil {
			var cells []string
			for _, v := range at(v, p.path) {
				cells = append(cells, cell(v))
			}
			text = strings.Join(cells, " ")
		}
		if _, err := io.WriteString(w, text); err != nil {
			return err
		}
	}
	return nil
}

// print writes what was found; single: it was asked for by name.
func (c *command) print(fs []found, o getOptions, single bool) error {
	switch {
	case o.format.documents():
		return c.printDocuments(fs, o, single)
	case o.format.name == "name":
		for _, f := range fs {
			fmt.Fprintln(c.stdio.Out, short(f.ref))
		}
		return nil
	case len(fs) == 0:
		c.nothing(o)
		return nil
	}
	c.printTables(fs, o)
	return nil
}

func (c *command) printDocuments(fs []found, o getOptions, single bool) error {
	docs := []json.RawMessage{}
	var unreadable []error
	for _, f := range fs {
		if f.doc == nil {
			unreadable = append(unreadable, errors.New(f.note))
			continue
		}
		docs = append(docs, o.document(f))
	}
	text, err := o.together(docs, single)
	if err != nil {
		return err
	}
	switch {
	case o.format.jsonpath != nil:
		err = o.format.printPaths(c.stdio.Out, text)
	case o.format.tmpl != nil:
		err = execute(c.stdio.Out, o.format.tmpl, text)
	default:
		if text, err = render(o.format.name, text); err == nil {
			_, err = c.stdio.Out.Write(text)
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
func (o getOptions) together(docs []json.RawMessage, single bool) ([]byte, error) {
	switch {
	case single && len(docs) == 1:
		return docs[0], nil
	case o.list == "" && o.format.tmpl == nil && o.format.jsonpath == nil:
		return json.Marshal(docs)
	}
	l := listOf{Kind: o.list + "List", APIVersion: api.GroupVersion, Items: docs}
	if o.list != "" && !o.export {
		l.Metadata.ResourceVersion = strconv.FormatInt(o.as, 10)
	}
	return json.Marshal(l)
}

// document is a resource as it is printed.
func (o getOptions) document(f found) []byte {
	if !o.export {
		return f.doc
	}
	doc, err := withMetadata(f.doc, func(meta map[string]json.RawMessage) {
		for _, name := range []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation", "selfLink", "managedFields", "ownerReferences"} {
			delete(meta, name)
		}
	})
	if err != nil { // metadata is no object, so there is nothing to take away
		return f.doc
	}
	return doc
}

func execute(w io.Writer, t *template.Template, doc []byte) error {
	v, err := tree(doc)
	if err != nil {
		return err
	}
	if err := t.Execute(w, v); err != nil {
		return fmt.Errorf("-o go-template: %w", err)
	}
	return nil
}

// render writes JSON as JSON for people, or as YAML.
func render(format string, doc []byte) ([]byte, error) {
	if format == "yaml" {
		return yaml.JSONToYAML(doc)
	}
	var b bytes.Buffer
	err := json.Indent(&b, doc, "", "  ")
	b.WriteByte('\n')
	return b.Bytes(), err
}

func (c *command) printTables(fs []found, o getOptions) {
	w := tabwriter.NewWriter(c.stdio.Out, 0, 0, 2, ' ', 0)
	last := ""
	for _, f := range fs {
		if f.kind.Kind != last && (last == "" || o.columns == nil) {
			if last != "" {
				fmt.Fprintln(w)
			}
			fmt.Fprintln(w, strings.Join(o.header(f), "\t"))
		}
		last = f.kind.Kind
		fmt.Fprintln(w, strings.Join(o.row(f), "\t"))
	}
	_ = w.Flush()
	for _, f := range fs {
		if f.note != "" && o.format.name != "wide" { // wide has a column for it
			fmt.Fprintf(c.stdio.Err, "%s: %s\n", short(f.ref), f.note)
		}
	}
}

// none stands in a column of custom-columns where a resource has nothing.
const none = "<none>"

func (o getOptions) header(f found) []string {
	if o.columns == nil {
		return header(f.kind, o)
	}
	var out []string
	for _, c := range o.columns {
		out = append(out, c.title)
	}
	return out
}

func (o getOptions) row(f found) []string {
	if o.columns == nil {
		return row(f, o)
	}
	doc := f.tree()
	var out []string
	for _, c := range o.columns {
		var cells []string
		for _, v := range at(doc, c.path) {
			cells = append(cells, cell(v))
		}
		if len(cells) == 0 {
			cells = []string{none}
		}
		out = append(out, strings.Join(cells, ","))
	}
	return out
}
