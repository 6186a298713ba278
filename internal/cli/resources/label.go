package resources

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/resources"
)

// labeling are the flags of label.
type labeling struct {
	namespace         string
	overwrite, remove bool
	dry               dryRun
}

// labelChange is one label to set, or to remove.
type labelChange struct {
	key, value string
	remove     bool
}

func (c *command) labelCmd() *cobra.Command {
	var o labeling
	cmd := &cobra.Command{
		Use:   "label KIND NAME | KIND/NAME KEY=VALUE… KEY-…",
		Short: "Set and remove labels of a resource",
		Long: `Set labels of a resource, KEY=VALUE, and remove others, KEY-. A label that has
another value already is changed only with --overwrite. Nothing else of the
stored document changes.

Exit code: 0 the labels are so, 1 one has another value or the resource does not
exist, 2 usage.`,
		Example: `  twill label node h1 rack=r7 zone=a
  twill label wep h1-k8s-web-eth0 -n prod tier=front --overwrite
  twill label hep h1-eth0 quarantine-
  twill label node h1 rack --remove`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) < 3 {
				return console.Usage("label: want a kind, a name and labels: twill label node h1 rack=r7 old-")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			ref, err := namedRef(cmd, args[:2], o.namespace)
			if err != nil {
				return err
			}
			changes, err := parseLabelChanges(args[2:], o.remove)
			if err != nil {
				return err
			}
			edit := func(doc any) (any, error) { return setLabels(doc, changes, o.overwrite) }
			return c.rewriteOne(cmd, resources.Rewrite{Ref: ref, What: "labeled", Edit: edit}, o.dry)
		},
		ValidArgsFunction: show.Complete(&c.Conn).One,
	}
	cmd.Flags().BoolVar(&o.overwrite, "overwrite", false, "change labels that have another value")
	cmd.Flags().BoolVar(&o.remove, "remove", false, "remove the labels whose keys are given")
	cmd.Flags().StringVarP(&o.namespace, "namespace", "n", "default", "namespace of the resource")
	o.dry.addFlag(cmd)
	c.out.As.AddFlag(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return show.TakeSlashes(cmd, false)
}

func parseLabelChanges(words []string, remove bool) ([]labelChange, error) {
	var out []labelChange
	seen := map[string]bool{}
	for _, w := range words {
		key, value, has := strings.Cut(w, "=")
		ch := labelChange{key: key, value: value}
		if !has {
			if ch.key, ch.remove = strings.CutSuffix(w, "-"); remove {
				ch.remove = true
			}
		}
		switch {
		case has && remove:
			return nil, console.Usage("label: %q with --remove: give keys only", w)
		case ch.key == "" || !has && !ch.remove:
			return nil, console.Usage("label: %q: want KEY=VALUE to set, or KEY- to remove", w)
		case seen[ch.key]:
			return nil, console.Usage("label: %s is given twice", ch.key)
		}
		seen[ch.key] = true
		out = append(out, ch)
	}
	return out, nil
}

// setLabels changes the labels of a document.
func setLabels(doc any, changes []labelChange, overwrite bool) (any, error) {
	top, _ := doc.(map[string]any)
	meta, _ := top["metadata"].(map[string]any)
	if meta == nil {
		return nil, errors.New("it has no metadata; delete it and create it again")
	}
	labels, ok := meta["labels"].(map[string]any)
	if !ok {
		labels = map[string]any{}
	}
	for _, ch := range changes {
		was, had := labels[ch.key]
		switch {
		case ch.remove:
			delete(labels, ch.key)
		case had && resources.Cell(was) != ch.value && !overwrite:
			return nil, fmt.Errorf("label %s is %q already; pass --overwrite to make it %q", ch.key, resources.Cell(was), ch.value)
		default:
			labels[ch.key] = ch.value
		}
	}
	if meta["labels"] = labels; len(labels) == 0 {
		delete(meta, "labels")
	}
	return doc, nil
}
