package calicoctl

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/conversion"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/manifests"
)

// convert prints resources of version 1, and NetworkPolicies of Kubernetes, as resources of version 3. It asks no datastore.
func (c *command) convert(context.Context) error {
	format := c.args.text("output")
	if format != "yaml" && format != "yml" && format != "json" {
		return fmt.Errorf("unrecognized output format '%s'", format)
	}
	files, err := manifests.Read(c.Stdio, manifests.Files{Paths: []string{c.args.text(optFile.name)}})
	if err != nil {
		return fmt.Errorf("Failed to execute command: %w", err)
	}
	var all []api.Resource
	for _, f := range files {
		rs, err := conversion.File(f.Data)
		if err != nil {
			return fmt.Errorf("Failed to execute command: %w", err)
		}
		all = append(all, rs...)
	}
	for _, r := range all {
		if err := conversion.Check(r); err != nil && !c.args.has("ignore-validation") {
			return fmt.Errorf("Converted manifest resource(s) failed validation: %wRe-run the command with '--ignore-validation' flag to see the converted output.\n", err)
		}
	}
	doc, err := conversion.Document(all)
	if err != nil {
		return fmt.Errorf("Failed to execute command: %w", err)
	}
	return wording.Write(c.Out, doc, format)
}

// optimize prints resources as they are. calicoctl splits a policy by the selectors of its rules, so that each part selects only who
// its rules are about. Whom no part selects is then under no policy of the tier, and the drop at the tier's end is gone: what was
// closed would be open. So nothing is split here.
func (c *command) optimize(context.Context) error {
	_, docs, err := c.checked("optimize")
	if err != nil || len(docs) == 0 {
		return err
	}
	return wording.WriteAll(c.Out, docs, "yaml")
}

// checked are the resources of files, and their documents as they stand there, if all are valid; of none it says so. It asks no datastore.
func (c *command) checked(verb string) (items []item, docs []json.RawMessage, err error) {
	items, err = c.items()
	if err != nil {
		return nil, nil, fmt.Errorf("Failed to execute command: %w", err)
	}
	if len(items) == 0 {
		fmt.Fprintln(c.Out, "No resources specified")
	}
	var wrong []error
	for _, i := range items {
		var doc json.RawMessage
		if i.res != nil {
			if doc, err = conversion.Document([]api.Resource{i.res}); err != nil { // before anything is filled in
				return nil, nil, err
			}
			if i.kind.Namespaced && i.ref.Namespace == "" {
				i.res.Meta().Namespace = "default"
			}
		}
		if err := i.valid(c.warn(&i)); err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", id(i.ref), err))
		}
		docs = append(docs, doc)
	}
	if len(wrong) > 0 {
		return nil, nil, fmt.Errorf("Failed to %s resources: %v", verb, wrong)
	}
	return items, docs, nil
}
