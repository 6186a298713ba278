package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/template"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/resources"
)

// Format is how resources are printed.
type Format struct {
	Name    string // empty is a table
	columns []column
	tmpl    *template.Template
	// jsonpath is a template of kubectl's; empty: the format is another.
	jsonpath jsonPath
}

// column is one of custom-columns.
type column struct {
	title string
	path  []Step
}

// Documents reports whether whole resources are printed, one list of them.
func (f Format) Documents() bool {
	return f.Name == "yaml" || f.Name == "json" || f.tmpl != nil || f.jsonpath != ""
}

// ParseFormat reads the value of -o.
func ParseFormat(text string) (Format, error) {
	name, arg, has := strings.Cut(text, "=")
	switch {
	case (name == "table" || name == "ps" || name == "text") && !has: // ps is calicoctl's word, text was that of why and flows
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
		path, err := parseJSONPath(arg)
		return Format{Name: name, jsonpath: path}, err
	case name == "go-template-file" && arg != "":
		file, err := ReadFile(arg)
		if err != nil {
			return Format{}, fmt.Errorf("-o go-template-file: %w", err)
		}
		name, arg = "go-template", string(file)
		fallthrough
	case name == "go-template" && arg != "":
		t, err := template.New("output").Option("missingkey=zero").Parse(arg)
		if err != nil {
			return Format{}, Usage("-o go-template: %v", err)
		}
		return Format{Name: name, tmpl: t}, nil
	}
	return Format{}, Usage("-o %q: want table, wide, yaml, json, name, custom-columns=NAME:.path,…, custom-columns-file=FILE, go-template=…, go-template-file=FILE or jsonpath={.path}", text)
}

func parseColumns(text string) ([]column, error) {
	var out []column
	for part := range strings.SplitSeq(text, ",") {
		title, path, ok := strings.Cut(part, ":")
		if !ok || title == "" {
			return nil, Usage("-o custom-columns: %q: want TITLE:.path, such as NAME:.metadata.name", part)
		}
		steps, err := ParsePath(path)
		if err != nil {
			return nil, err
		}
		out = append(out, column{title, steps})
	}
	return out, nil
}

// readColumns reads a file of two lines, titles and paths, as kubectl does.
func readColumns(file string) ([]column, error) {
	text, err := ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("-o custom-columns-file: %w", err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	titles := strings.Fields(lines[0])
	if len(lines) != 2 || len(titles) == 0 || len(titles) != len(strings.Fields(lines[1])) {
		return nil, Usage("-o custom-columns-file: %s: want two lines, titles and below each its path, with blanks between them", file)
	}
	var out []column
	for i, path := range strings.Fields(lines[1]) {
		steps, err := ParsePath(path)
		if err != nil {
			return nil, err
		}
		out = append(out, column{titles[i], steps})
	}
	return out, nil
}

// Print writes a JSON document as the format says.
func (f Format) Print(w io.Writer, doc []byte) error {
	switch {
	case f.jsonpath != "":
		return f.jsonpath.print(w, doc)
	case f.tmpl != nil:
		return execute(w, f.tmpl, doc)
	}
	text, err := Render(f.Name, doc)
	if err == nil {
		_, err = w.Write(text)
	}
	return err
}

// List reports whether the format sees several documents as the items of one list: a path or template is then good for both.
func (f Format) List() bool { return f.jsonpath != "" || f.tmpl != nil }

// Custom reports whether the columns are the user's own.
func (f Format) Custom() bool { return f.columns != nil }

// Titles are those of the user's own columns.
func (f Format) Titles() (out []string) {
	for _, c := range f.columns {
		out = append(out, c.title)
	}
	return out
}

// none stands in a column where a document has nothing.
const none = "<none>"

// Cells are what a document has in the user's own columns.
func (f Format) Cells(doc any) (out []string) {
	for _, c := range f.columns {
		var cells []string
		for _, v := range At(doc, c.path) {
			cells = append(cells, resources.Cell(v))
		}
		if len(cells) == 0 {
			cells = []string{none}
		}
		out = append(out, strings.Join(cells, ","))
	}
	return out
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
