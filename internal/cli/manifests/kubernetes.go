package manifests

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/translate"
)

// LoadMixed loads files that may also have Kubernetes' own objects, which it translates.
func LoadMixed(c console.Stdio, paths []string, recursive bool) ([]resources.Manifest, error) {
	sources, err := readSources(c, paths, recursive)
	if err != nil {
		return nil, err
	}
	var out []resources.Manifest
	var objects []translate.Object
	var wrong []error
	for _, s := range sources {
		docs, foreign, err := api.DecodeMixed(s.Data)
		ms, errs := take(s.Name, docs, err)
		out, wrong = append(out, ms...), append(wrong, errs...)
		for _, f := range foreign {
			o, err := translate.Decode(f.JSON)
			if err == nil {
				objects = append(objects, o)
			}
			wrong = append(wrong, resources.InFile(s.Name, inLine(f.Index, f.Line, err))...)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	ms, wrong := translated(c, objects, out)
	out = append(out, ms...)
	wrong = append(wrong, repeated(out)...)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &EmptyError{"no resource in " + console.Count(len(sources), "file")}
	}
	return out, nil
}

// Stored is how a datastore would hold resources.
func Stored(ms []resources.Manifest) (us []api.Update, err error) {
	for _, m := range ms {
		key, err := api.Key(m.Resource)
		if err != nil {
			return nil, err
		}
		value, err := api.EncodeStored(m.Resource)
		if err != nil {
			return nil, err
		}
		us = append(us, api.Update{Key: key, Value: value})
	}
	return us, nil
}

// inLine says where in a file something is wrong.
func inLine(doc, line int, err error) error {
	var fields api.FieldErrors
	if errors.As(err, &fields) {
		for _, e := range fields {
			e.Doc, e.Line = doc, line
		}
	}
	return err
}

// translated returns the resources that objects stand for, except those that the files have already.
func translated(c console.Stdio, objects []translate.Object, have []resources.Manifest) (out []resources.Manifest, wrong []error) {
	for _, note := range translate.Place(objects) {
		fmt.Fprintln(c.Err, note)
	}
	const file = "Kubernetes"
	for _, o := range objects {
		if why := o.Nothing(); why != "" {
			fmt.Fprintf(c.Err, "%s %s is left out: it %s\n", strings.ToLower(o.Kind), o.Name(), why)
		}
		for _, a := range o.PassedOver() {
			fmt.Fprintf(c.Err, "%s %s: annotation %s is passed over: it has no effect here\n", strings.ToLower(o.Kind), o.Name(), a)
		}
		rs, err := translate.Resources(o)
		wrong = append(wrong, resources.InFile(file, err)...)
		for _, r := range rs {
			out = append(out, resources.Manifest{File: o.Kind, Document: api.Document{Resource: r}})
		}
	}
	for _, r := range translate.Implied(objects) {
		same := func(m resources.Manifest) bool { return api.RefOf(m.Resource) == api.RefOf(r) }
		if !slices.ContainsFunc(have, same) {
			out = append(out, resources.Manifest{File: "implied", Document: api.Document{Resource: r}})
		}
	}
	for _, m := range out {
		api.Default(m.Resource)
		wrong = append(wrong, resources.InFile(file, api.Validate(m.Resource).Err())...)
	}
	return out, wrong
}
