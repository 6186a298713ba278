package calicoctl

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// answer is one resource that was asked for by name, or the list of a kind.
type answer struct {
	kind     wording.Kind
	list     bool
	position datastore.Position
	found    []show.Found
}

func (c *command) get(ctx context.Context) error {
	format, arg, has := strings.Cut(c.args.text("output"), "=")
	switch {
	case slices.Contains([]string{"go-template", "go-template-file", "custom-columns"}, format):
		if arg == "" {
			return fmt.Errorf("need to specify %s", map[string]string{"go-template": "a template", "go-template-file": "a template file", "custom-columns": "at least one column"}[format])
		}
	case has || !slices.Contains([]string{"yaml", "yml", "json", "ps", "wide", "name"}, format):
		return fmt.Errorf("unrecognized output format '%s'", c.args.text("output"))
	}
	items, err := c.items()
	if bad := (badFile{}); errors.As(err, &bad) {
		return fmt.Errorf("Failed to execute command: %w", err)
	}
	if err != nil {
		return fmt.Errorf("Failed to get resources: %w", err)
	}
	var failed []string
	err = c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		var answers []answer
		for _, i := range items {
			a, err := c.answer(ctx, s, i)
			if err != nil {
				failed = append(failed, err.Error())
				continue
			}
			answers = append(answers, a)
		}
		return c.print(ctx, s, answers, format, arg)
	})
	if err == nil && len(failed) > 0 {
		err = errors.New(strings.Join(failed, "\n"))
	}
	return err
}

// answer looks up one item.
func (c *command) answer(ctx context.Context, s datastore.Store, i item) (a answer, err error) {
	if i.err != nil {
		return a, i.err
	}
	if err := c.place(&i); err != nil {
		return a, err
	}
	a = answer{kind: i.kind, list: i.ref.Name == ""}
	if !a.list && i.kind.Namespaced && i.ref.Namespace == "" {
		return a, errors.New("cannot use --all-namespace flag for getting a single resource")
	}
	all, position, err := show.Find(ctx, s, i.kind.Kind, i.ref.Namespace)
	a.position = position
	for _, f := range all {
		switch {
		case !a.list && f.Ref.Name != i.ref.Name:
		case f.Doc == nil || f.Res == nil:
			fmt.Fprintf(c.Err, "%s: %s\n", id(f.Ref), f.Note)
		default:
			a.found = append(a.found, f)
		}
	}
	if err == nil && !a.list && len(a.found) == 0 {
		err = notThere(i.ref)
	}
	return a, err
}

func (c *command) print(ctx context.Context, s datastore.Store, answers []answer, format, arg string) error {
	switch format {
	case "yaml", "yml", "json":
		return c.printDocuments(answers, format)
	case "name":
		for _, a := range answers {
			for _, f := range a.found {
				fmt.Fprintln(c.Out, resources.Short(f.Ref))
			}
		}
		return nil
	case "go-template-file":
		text, err := os.ReadFile(arg)
		if err != nil {
			return err
		}
		arg = string(text)
	}
	as := asNumber(ctx, s)
	var shapes []any
	for _, a := range answers {
		rows := []wording.Shape{}
		for _, f := range a.found {
			r := wording.ShapeOf(asWritten(f))
			r["asnumber"] = as
			rows = append(rows, r)
		}
		if strings.HasPrefix(format, "go-template") {
			shapes = append(shapes, a.shape(rows))
			continue
		}
		titles := a.kind.Titles(format == "wide")
		if format == "custom-columns" {
			titles = strings.Split(arg, ",")
		}
		if a.kind.Namespaced && (c.args.has("all-namespaces") || c.args.text(optNamespace.name) != "") {
			titles = append([]string{wording.Namespace}, titles...)
		}
		if err := wording.Table(c.Out, a.kind, titles, rows); err != nil {
			return err
		}
	}
	if strings.HasPrefix(format, "go-template") {
		return wording.Template(c.Out, arg, shapes, as)
	}
	return nil
}

// asWritten is a resource as its document says it, and not as what reads it takes it: a net of one address has no length there.
func asWritten(f show.Found) api.Resource {
	r := api.New(f.Ref.Kind)
	if r == nil || json.Unmarshal(f.Doc, r) != nil {
		return f.Res
	}
	return r
}

// shape is what templates see of an answer.
func (a answer) shape(rows []wording.Shape) any {
	items := make([]any, 0, len(rows))
	for _, r := range rows {
		items = append(items, map[string]any(r))
	}
	if !a.list && len(items) == 1 {
		return items[0]
	}
	return map[string]any{"Kind": a.kind.Kind.Kind + "List", "APIVersion": api.GroupVersion, "Items": items, "ListMeta": map[string]any{"ResourceVersion": a.position.String()}}
}

// printDocuments prints one answer as it is, and several as a sequence.
func (c *command) printDocuments(answers []answer, format string) error {
	docs := []json.RawMessage{}
	for _, a := range answers {
		items := []json.RawMessage{}
		for _, f := range a.found {
			doc, err := wording.Document(withRevision(f), c.args.has("export") && !a.list && len(c.args.words) > 1)
			if err != nil {
				return err
			}
			items = append(items, doc)
		}
		if !a.list {
			docs = append(docs, items...)
			continue
		}
		list, err := json.Marshal(map[string]any{"items": items})
		if err != nil {
			return err
		}
		head := map[string]json.RawMessage{
			"kind": quoted(a.kind.Kind.Kind + "List"), "apiVersion": quoted(api.GroupVersion),
			"metadata": json.RawMessage(`{"resourceVersion":` + string(quoted(a.position.String())) + `}`), "items": list[len(`{"items":`) : len(list)-1],
		}
		docs = append(docs, wording.Object(head, []string{"kind", "apiVersion", "metadata", "items"}))
	}
	return wording.WriteAll(c.Out, docs, format)
}

// withRevision gives what is built in the revision that calicoctl prints of it.
func withRevision(f show.Found) []byte {
	if !f.Builtin {
		return f.Doc
	}
	doc, err := resources.WithMetadata(f.Doc, func(meta map[string]json.RawMessage) { meta["resourceVersion"] = quoted("0") })
	if err != nil { // its metadata is an object
		return f.Doc
	}
	return doc
}

// asNumber is the cluster's AS number.
func asNumber(ctx context.Context, s datastore.Store) string {
	const usual = "64512"
	u, err := resources.FindStored(ctx, s, api.Ref{Kind: api.KindBGPConfiguration, Name: "default"})
	switch {
	case errors.Is(err, datastore.ErrNotFound):
		return usual
	case err != nil:
		return "unknown"
	}
	st, err := api.DecodeStored(u)
	cfg, ok := st.Resource.(*api.BGPConfiguration)
	if err != nil || !ok {
		return "unknown"
	}
	if cfg.Spec.ASNumber == nil {
		return usual
	}
	return cmp.Or(fmt.Sprint(*cfg.Spec.ASNumber), usual)
}
