package show

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

// Print writes what was found; single: it was asked for by name.
func Print(c console.Stdio, fs []Found, o Options, single bool) error {
	switch {
	case o.Documents():
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
	err = o.Format.Print(c.Out, text)
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
	case o.List == "" && !o.Format.List():
		return json.Marshal(docs)
	}
	l := listOf{Kind: o.List + "List", APIVersion: api.GroupVersion, Items: docs}
	if o.List != "" && !o.Export {
		l.Metadata.ResourceVersion = o.as.String()
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

func printTables(c console.Stdio, fs []Found, o Options) {
	w := terminal.NewTable(c.Out)
	o.several = slices.ContainsFunc(fs, func(f Found) bool { return f.kind.Kind != fs[0].kind.Kind })
	last := ""
	for _, f := range fs {
		if f.kind.Kind != last && (last == "" || !o.Custom()) {
			if last != "" {
				w.Row()
			}
			w.Row(o.Header(f)...)
		}
		last = f.kind.Kind
		w.Row(o.Row(f)...)
	}
	_ = w.Flush()
	for _, f := range fs {
		if f.Note != "" && o.Format.Name != "wide" { // wide has a column for it
			fmt.Fprintf(c.Err, "%s: %s\n", resources.Short(f.Ref), f.Note)
		}
	}
}

// Header are the titles of the columns of a resource's kind.
func (o Options) Header(f Found) []string {
	if o.Custom() {
		return o.Titles()
	}
	return header(f.kind, o)
}

// Row is a resource in those columns.
func (o Options) Row(f Found) []string {
	if o.Custom() {
		return o.Cells(f.Tree())
	}
	return row(f, o)
}
