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

// fileFlags adds -f and -R.
func fileFlags(cmd *cobra.Command, paths *[]string, recursive *bool) {
	cmd.Flags().StringSliceVarP(paths, "filename", "f", nil, "file or directory of resources, or - for standard input; repeatable")
	cmd.Flags().BoolVarP(recursive, "recursive", "R", false, "directories with all below them")
}

// load reads, decodes, defaults and validates everything, or says all that is wrong.
func (c *command) load(paths []string, recursive bool) ([]manifest, error) {
	sources, err := c.readSources(paths, recursive)
	if err != nil {
		return nil, err
	}
	var out []manifest
	var wrong []error
	for _, s := range sources {
		docs, err := api.Decode(s.data)
		wrong = append(wrong, inFile(s.name, err)...)
		for _, d := range docs {
			api.Default(d.Resource)
			errs := api.Validate(d.Resource)
			for _, e := range errs {
				e.Doc, e.Line = d.Index, d.Line
			}
			wrong = append(wrong, inFile(s.name, errs.Err())...)
			out = append(out, manifest{s.name, d})
		}
	}
	wrong = append(wrong, repeated(out)...)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no resource in %s", count(len(sources), "file"))
	}
	return out, nil
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
