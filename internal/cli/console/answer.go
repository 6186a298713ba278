package console

import (
	"encoding/json"
	"fmt"
	"io"
	"reflect"

	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

// Answer is what a command has to say, for each -o.
type Answer struct {
	// Doc is what json, yaml, paths and templates show.
	Doc any
	// Rows is the path of the list in Doc that has a row for name and custom-columns, such as .sessions. Empty: Doc itself, which is
	// a list or one row.
	Rows string
	// Name is the path in a row of what -o name prints, and Kind what stands before it with a slash.
	Name, Kind string
	// Table prints it for people; wide: all that is known. Nothing is printed for a row of its own.
	Table func(w io.Writer, wide bool) error
}

// Answer prints an answer as -o says.
func (c Stdio) Answer(o Output, a Answer) error {
	if a.Table != nil && o.IsTable() {
		return a.Table(c.Out, o.Format.Name == "wide")
	}
	doc, err := json.Marshal(a.Doc)
	if err != nil {
		return err
	}
	if v := reflect.ValueOf(a.Doc); v.Kind() == reflect.Slice && v.IsNil() {
		doc = []byte("[]") // no rows are a list, too
	}
	if o.Documents() {
		return o.Format.Print(c.Out, doc)
	}
	rows, err := a.rows(doc)
	if err != nil {
		return err
	}
	if o.Custom() {
		t := terminal.NewTable(c.Out, o.Titles()...)
		for _, r := range rows {
			t.Row(o.Cells(r)...)
		}
		return t.Flush()
	}
	name, err := ParsePath(a.Name)
	if err != nil {
		return err
	}
	for _, r := range rows {
		for _, v := range At(r, name) {
			text := resources.Cell(v)
			if a.Kind != "" {
				text = a.Kind + "/" + text
			}
			fmt.Fprintln(c.Out, text)
		}
	}
	return nil
}

// rows are the rows of the document.
func (a Answer) rows(doc []byte) ([]any, error) {
	v, err := resources.Tree(doc)
	if err != nil {
		return nil, err
	}
	path, err := ParsePath(a.Rows)
	if err != nil {
		return nil, err
	}
	found := At(v, path)
	if len(found) == 1 {
		switch v := found[0].(type) {
		case []any:
			return v, nil
		case nil:
			return nil, nil
		}
	}
	return found, nil
}
