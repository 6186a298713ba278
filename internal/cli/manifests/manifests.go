// Package manifests reads the files that users name with -f.
//
// In: paths, directories, standard input. Out: resources, defaulted and valid, or all
// that is wrong, by file, line and field.
package manifests

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
)

// Files are the flags of commands that read files.
type Files struct {
	Paths                []string
	Recursive, SkipEmpty bool
	strict               bool   // see addStrict
	namespace            string // of resources that name none, as -n says; empty: it does not
}

func (o *Files) AddFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&o.Paths, "filename", "f", nil, "file or directory of resources, or - for standard input; repeatable")
	cmd.Flags().BoolVarP(&o.Recursive, "recursive", "R", false, "directories with all below them")
	cmd.Flags().BoolVar(&o.SkipEmpty, "skip-empty", false, "it is no error if there is no resource in the files")
}

// AddNamespace is for commands whose -n means nothing but files.
func (o *Files) AddNamespace(cmd *cobra.Command) {
	cmd.Flags().StringP("namespace", "n", "default", "namespace of resources that name none")
}

// ReadNamespace notes what -n says, if it was given.
func (o *Files) ReadNamespace(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("namespace"); f.Changed {
		o.namespace = f.Value.String()
	}
}

// Skips reports whether err is only that there is nothing to do.
func (o *Files) Skips(err error) bool {
	var empty *EmptyError
	return o.SkipEmpty && errors.As(err, &empty)
}

// EmptyError is files, or a directory, in which there is no resource.
type EmptyError struct{ text string }

func (e *EmptyError) Error() string { return e.text }

// Load reads, decodes, defaults and validates everything, or says all that is wrong.
func Load(c console.Stdio, o Files) ([]resources.Manifest, error) {
	sources, err := readSources(c, o.Paths, o.Recursive)
	if err != nil {
		return nil, err
	}
	var out []resources.Manifest
	var wrong []error
	for _, s := range sources {
		docs, err := api.Decode(s.Data)
		wrong = append(wrong, resources.InFile(s.Name, o.place(docs).Err())...)
		ms, errs := take(s.Name, docs, err)
		out, wrong = append(out, ms...), append(wrong, errs...)
	}
	wrong = append(wrong, repeated(out)...)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &EmptyError{"no resource in " + console.Count(len(sources), "file")}
	}
	if o.namespace != "" && !slices.ContainsFunc(out, func(m resources.Manifest) bool { return api.RefOf(m.Resource).Namespace != "" }) {
		return nil, console.Usage("-n %s: nothing in these files has a namespace; leave -n out", o.namespace)
	}
	return out, nil
}

// place puts resources that name no namespace into that of -n. One that names another is wrong: which of the two was meant?
func (o Files) place(docs []api.Document) (wrong api.FieldErrors) {
	for _, d := range docs {
		kind, _ := api.LookupKind(d.Resource.Type().Kind)
		m := d.Resource.Meta()
		switch {
		case !kind.Namespaced || o.namespace == "" || m.Namespace == o.namespace:
		case m.Namespace == "":
			m.Namespace = o.namespace
		default:
			wrong = append(wrong, &api.FieldError{
				Doc: d.Index, Line: d.Line, Kind: kind.Kind, Name: m.Namespace + "/" + m.Name, Path: "metadata.namespace",
				Reason: fmt.Sprintf("is %q, and -n says %q: leave one of them out", m.Namespace, o.namespace),
			})
		}
	}
	return wrong
}

// take defaults and validates what was read of a file.
func take(file string, docs []api.Document, err error) (out []resources.Manifest, wrong []error) {
	wrong = resources.InFile(file, err)
	for _, d := range docs {
		api.Default(d.Resource)
		wrong = append(wrong, resources.InFile(file, inLine(d.Index, d.Line, api.Validate(d.Resource).Err()))...)
		out = append(out, resources.Manifest{File: file, Document: d})
	}
	return out, wrong
}

// repeated finds resources that are there twice: which of the two was meant?
func repeated(ms []resources.Manifest) []error {
	first := map[api.Ref]resources.Manifest{}
	var out []error
	for _, m := range ms {
		ref := api.RefOf(m.Resource)
		had, ok := first[ref]
		if !ok || ref.Name == "" {
			first[ref] = m
			continue
		}
		out = append(out, fmt.Errorf("%s: %s (line %d): is there already: %s (line %d); remove one", m.File, ref, m.Line, had.File, had.Line))
	}
	return out
}
