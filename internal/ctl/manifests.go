package ctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// manifest is one resource of a user's file, defaulted and valid.
type manifest struct {
	file string
	api.Document
}

// fileOptions are the flags of commands that read files.
type fileOptions struct {
	paths                []string
	recursive, skipEmpty bool
	strict               bool   // see addStrict
	namespace            string // of resources that name none, as -n says; empty: it does not
}

func (o *fileOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringSliceVarP(&o.paths, "filename", "f", nil, "file or directory of resources, or - for standard input; repeatable")
	cmd.Flags().BoolVarP(&o.recursive, "recursive", "R", false, "directories with all below them")
	cmd.Flags().BoolVar(&o.skipEmpty, "skip-empty", false, "it is no error if there is no resource in the files")
}

// addNamespace is for commands whose -n means nothing but files.
func (o *fileOptions) addNamespace(cmd *cobra.Command) {
	cmd.Flags().StringP("namespace", "n", "default", "namespace of resources that name none")
}

// readNamespace notes what -n says, if it was given.
func (o *fileOptions) readNamespace(cmd *cobra.Command) {
	if f := cmd.Flags().Lookup("namespace"); f.Changed {
		o.namespace = f.Value.String()
	}
}

// skips reports whether err is only that there is nothing to do.
func (o *fileOptions) skips(err error) bool {
	var empty *emptyError
	return o.skipEmpty && errors.As(err, &empty)
}

// emptyError is files, or a directory, in which there is no resource.
type emptyError struct{ text string }

func (e *emptyError) Error() string { return e.text }

// load reads, decodes, defaults and validates everything, or says all that is wrong.
func (c *command) load(o fileOptions) ([]manifest, error) {
	sources, err := c.readSources(o.paths, o.recursive)
	if err != nil {
		return nil, err
	}
	var out []manifest
	var wrong []error
	for _, s := range sources {
		docs, err := api.Decode(s.data)
		wrong = append(wrong, inFile(s.name, o.place(docs).Err())...)
		ms, errs := take(s.name, docs, err)
		out, wrong = append(out, ms...), append(wrong, errs...)
	}
	wrong = append(wrong, repeated(out)...)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &emptyError{"no resource in " + count(len(sources), "file")}
	}
	if o.namespace != "" && !slices.ContainsFunc(out, func(m manifest) bool { return api.RefOf(m.Resource).Namespace != "" }) {
		return nil, usage("-n %s: nothing in these files has a namespace; leave -n out", o.namespace)
	}
	return out, nil
}

// place puts resources that name no namespace into that of -n. One that names another is wrong: which of the two was meant?
func (o fileOptions) place(docs []api.Document) (wrong api.FieldErrors) {
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
func take(file string, docs []api.Document, err error) (out []manifest, wrong []error) {
	wrong = inFile(file, err)
	for _, d := range docs {
		api.Default(d.Resource)
		wrong = append(wrong, inFile(file, inLine(d.Index, d.Line, api.Validate(d.Resource).Err()))...)
		out = append(out, manifest{file, d})
	}
	return out, wrong
}

// repeated finds resources that are there twice: which of the two was meant?
func repeated(ms []manifest) []error {
	first := map[api.Ref]manifest{}
	var out []error
	for _, m := range ms {
		ref := api.RefOf(m.Resource)
		had, ok := first[ref]
		if !ok || ref.Name == "" {
			first[ref] = m
			continue
		}
		out = append(out, fmt.Errorf("%s: %s (line %d): is there already: %s (line %d); remove one", m.file, ref, m.Line, had.file, had.Line))
	}
	return out
}

func inFile(name string, err error) []error {
	var fields api.FieldErrors
	switch {
	case err == nil:
		return nil
	case errors.As(err, &fields):
		var out []error
		for _, e := range fields {
			out = append(out, fmt.Errorf("%s: %w", name, e))
		}
		return out
	}
	return []error{fmt.Errorf("%s: %w", name, err)}
}

// inOrder sorts so that what others refer to comes first.
func inOrder(ms []manifest) []manifest {
	rank := map[string]int{}
	for i, k := range api.Kinds() {
		rank[k.Kind] = i
	}
	out := slices.Clone(ms)
	slices.SortStableFunc(out, func(a, b manifest) int {
		return cmp.Compare(rank[a.Resource.Type().Kind], rank[b.Resource.Type().Kind])
	})
	return out
}

func isUnreachable(err error) bool {
	return errors.Is(err, datastore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded)
}

// short is how a resource is called in messages: networkpolicy/prod/web.
func short(ref api.Ref) string {
	k, _ := api.LookupKind(ref.Kind)
	name := ref.Name
	if ref.Namespace != "" {
		name = ref.Namespace + "/" + name
	}
	return singular(k) + "/" + name
}
