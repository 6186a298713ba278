package ctl

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

func (c *command) translateCmd() *cobra.Command {
	var o getOptions
	var files fileOptions
	cmd := &cobra.Command{
		Use:   "translate -f FILE…",
		Short: "Say what Kubernetes' objects mean, as resources",
		Long: `Print the projectcalico.org/v3 resources that Kubernetes' objects mean, without a
cluster and without a datastore: NetworkPolicy, Namespace, ServiceAccount, Pod,
Service and EndpointSlice. Resources in the same files are printed as they are.

"twill why --files" answers questions about the same files. In a cluster it is the
Kubernetes datastore that translates; what is printed here need not be applied.`,
		Example: "  twill translate -f policies/ -R\n  kubectl get namespaces,pods,networkpolicies -A -o yaml | twill translate -f -",
		Args: func(cmd *cobra.Command, args []string) (err error) {
			if o.format, err = parseFormat(o.output); err != nil {
				return err
			}
			return noArgs(cmd, args)
		},
		RunE: func(*cobra.Command, []string) error {
			ms, err := c.loadMixed(files.paths, files.recursive)
			if files.skips(err) {
				return nil
			}
			if err != nil {
				return err
			}
			us, err := stored(inOrder(ms))
			if err != nil {
				return err
			}
			var out []found
			for _, u := range us {
				ref, _ := api.ParseKey(u.Key) // it was made by stored
				kind, _ := api.LookupKind(ref.Kind)
				out = append(out, readFound(kind, u))
			}
			return c.print(out, o, false)
		},
	}
	files.addFlags(cmd)
	o.output = "yaml"
	addOutput(cmd, &o.output, "format, as of get", getFormats...)
	return cmd
}

// loadMixed is load for files in which Kubernetes' own objects may stand beside resources: it translates them.
func (c *command) loadMixed(paths []string, recursive bool) ([]manifest, error) {
	sources, err := c.readSources(paths, recursive)
	if err != nil {
		return nil, err
	}
	var out []manifest
	var objects []translate.Object
	var wrong []error
	for _, s := range sources {
		docs, foreign, err := api.DecodeMixed(s.data)
		ms, errs := take(s.name, docs, err)
		out, wrong = append(out, ms...), append(wrong, errs...)
		for _, f := range foreign {
			o, err := translate.Decode(f.JSON)
			if err == nil {
				objects = append(objects, o)
			}
			wrong = append(wrong, inFile(s.name, inLine(f.Index, f.Line, err))...)
		}
	}
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	ms, wrong := c.translated(objects, out)
	out = append(out, ms...)
	wrong = append(wrong, repeated(out)...)
	if err := errors.Join(wrong...); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, &emptyError{"no resource in " + count(len(sources), "file")}
	}
	return out, nil
}

// stored is how a datastore would hold resources.
func stored(ms []manifest) (us []api.Update, err error) {
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

// translated are the resources that objects mean, beside those that the files hold already.
func (c *command) translated(objects []translate.Object, have []manifest) (out []manifest, wrong []error) {
	for _, note := range translate.Place(objects) {
		fmt.Fprintln(c.stdio.Err, note)
	}
	const file = "Kubernetes"
	for _, o := range objects {
		if why := o.Nothing(); why != "" {
			fmt.Fprintf(c.stdio.Err, "%s %s is left out: it %s\n", strings.ToLower(o.Kind), o.Name(), why)
		}
		for _, a := range o.PassedOver() {
			fmt.Fprintf(c.stdio.Err, "%s %s: annotation %s is passed over: it has no effect here\n", strings.ToLower(o.Kind), o.Name(), a)
		}
		rs, err := translate.Resources(o)
		wrong = append(wrong, inFile(file, err)...)
		for _, r := range rs {
			out = append(out, manifest{file: o.Kind, Document: api.Document{Resource: r}})
		}
	}
	for _, r := range translate.Implied(objects) {
		same := func(m manifest) bool { return api.RefOf(m.Resource) == api.RefOf(r) }
		if !slices.ContainsFunc(have, same) {
			out = append(out, manifest{file: "implied", Document: api.Document{Resource: r}})
		}
	}
	for _, m := range out {
		api.Default(m.Resource)
		wrong = append(wrong, inFile(file, api.Validate(m.Resource).Err())...)
	}
	return out, wrong
}
