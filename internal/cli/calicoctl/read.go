package calicoctl

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/resources"
)

// item is one resource that a command is about.
type item struct {
	kind wording.Kind
	ref  api.Ref
	res  api.Resource // nil: it was named on the command line, or cannot be read
	raw  []byte       // as it stands in the file
	seen string       // the resourceVersion that it has there
	err  error        // it is in a file, and cannot be right
}

// badFile is a file that cannot be read.
type badFile struct{ error }

// items are what the arguments are about: resources of files, or of a kind by their names; without names, one without a name.
func (c *command) items() ([]item, error) {
	if c.args.has(optFile.name) {
		return c.ofFiles()
	}
	k, err := wording.LookupKind(c.args.word(0))
	if err != nil {
		return nil, err
	}
	names := c.args.words[1:]
	if len(names) == 0 {
		return []item{{kind: k, ref: api.Ref{Kind: k.Kind.Kind}}}, nil
	}
	var out []item
	for _, n := range names {
		if n == "" {
			return nil, errors.New("resource name may not be empty")
		}
		out = append(out, item{kind: k, ref: api.Ref{Kind: k.Kind.Kind, Name: n}})
	}
	return out, nil
}

func (c *command) ofFiles() (out []item, err error) {
	path := c.args.text(optFile.name)
	files, err := manifests.Read(c.Stdio, manifests.Files{Paths: []string{path}, Recursive: c.args.has(optRecursive.name)})
	var empty *manifests.EmptyError
	if err != nil && !errors.As(err, &empty) {
		return nil, badFile{err}
	}
	for _, f := range files {
		items, err := decode(f.Data)
		if err != nil {
			return nil, badFile{err}
		}
		if len(items) == 0 && !c.args.has(optSkipEmpty.name) {
			return nil, fmt.Errorf("No resources specified in file %s", f.Name)
		}
		out = append(out, items...)
	}
	if len(out) == 0 && !c.args.has(optSkipEmpty.name) {
		what := "file"
		if st, err := os.Stat(path); err == nil && st.IsDir() {
			what = "directory"
		}
		return nil, fmt.Errorf("No resources specified in %s %s", what, path)
	}
	return out, nil
}

// decode reads the resources of a file.
func decode(data []byte) (out []item, err error) {
	var wrong []string
	for _, doc := range api.Documents(data) {
		docs, err := api.Decode(doc)
		later := map[string]api.FieldErrors{} // what calicoctl finds when it has read all, by kind and name
		var order []*api.FieldError
		var errs api.FieldErrors
		if err != nil && !errors.As(err, &errs) {
			return nil, err
		}
		for _, e := range errs {
			text, isLater := wording.Unreadable(e, doc)
			if !isLater {
				wrong = append(wrong, text)
				continue
			}
			if id := e.Kind + "/" + e.Name; later[id] == nil {
				order = append(order, e)
			}
			later[e.Kind+"/"+e.Name] = append(later[e.Kind+"/"+e.Name], e)
		}
		for _, e := range order {
			k, ok := wording.KindOf(e.Kind)
			if !ok {
				return nil, e
			}
			out = append(out, item{kind: k, ref: api.Ref{Kind: e.Kind, Name: e.Name}, err: wording.WrongFields(later[e.Kind+"/"+e.Name], doc)})
		}
		for _, d := range docs {
			k, ok := wording.KindOf(d.Resource.Type().Kind)
			if !ok {
				wrong = append(wrong, fmt.Sprintf("Unknown resource type (%s) and/or version (%s)", d.Resource.Type().Kind, d.Resource.Type().APIVersion))
				continue
			}
			out = append(out, item{kind: k, ref: api.RefOf(d.Resource), res: d.Resource, raw: d.JSON, seen: d.Resource.Meta().ResourceVersion})
		}
	}
	if len(wrong) > 0 {
		return nil, errors.New(strings.Join(wrong, "\n"))
	}
	return out, nil
}

// place decides the namespace of an item, from its own, -n and -A.
func (c *command) place(i *item) error {
	all, flag := c.args.has("all-namespaces"), c.args.text(optNamespace.name)
	own := i.ref.Namespace
	kindName := i.kind.Kind.Kind
	switch {
	case !i.kind.Namespaced && own != "":
		return fmt.Errorf("namespace should not be specified for a non-namespaced resource. %s is not a namespaced resource", kindName)
	case !i.kind.Namespaced && (all || flag != ""):
		return fmt.Errorf("%s is not namespaced", kindName)
	case !i.kind.Namespaced:
	case all && flag != "":
		return errors.New("cannot use both --namespace and --all-namespaces flags at the same time")
	case all:
		i.ref.Namespace = ""
	case own == "" && flag == "":
		i.ref.Namespace = "default"
	case own == "":
		i.ref.Namespace = flag
	case flag != "" && own != flag:
		return fmt.Errorf("resource namespace does not match client namespace. %s != %s", own, flag)
	}
	if i.res != nil {
		i.res.Meta().Namespace = i.ref.Namespace
	}
	return nil
}

// valid defaults a resource of a file and says what is wrong in it. Of metadata only what users may say is kept: labels that the
// system gives are given anew. What calicoctl takes though it has no effect is handed to warn.
func (i *item) valid(warn func(string)) error {
	if i.err != nil {
		return i.err
	}
	m := i.res.Meta()
	*m = api.ObjectMeta{Name: m.Name, Namespace: m.Namespace, ResourceVersion: m.ResourceVersion, Labels: m.Labels, Annotations: m.Annotations}
	if i.ref.Kind == api.KindWorkloadEndpoint {
		for _, label := range []string{api.LabelNamespace, api.LabelOrchestrator, api.LabelServiceAccount} {
			delete(m.Labels, label)
		}
	}
	api.Default(i.res)
	var wrong api.FieldErrors
	for _, e := range api.Validate(i.res) {
		if idle[i.ref.Kind] == e.Path && strings.HasPrefix(e.Reason, "is missing") {
			warn(e.Path + " " + e.Reason)
			continue
		}
		wrong = append(wrong, e)
	}
	if len(wrong) > 0 {
		return wording.WrongFields(wrong, i.raw)
	}
	return nil
}

// idle are fields without which a resource says nothing: settings of no node, a session with nobody. calicoctl takes such a resource.
var idle = map[string]string{api.KindFelixConfiguration: "spec.nodeSelector", api.KindBGPPeer: "spec.peerIP"}

// warn prints what has no effect in an item.
func (c *command) warn(i *item) func(string) {
	return func(what string) {
		fmt.Fprintf(c.Err, "warning: %s has no effect: %s\n", id(i.ref), what)
	}
}

// manifest is an item as the checks of package resources want it.
func (i *item) manifest() []resources.Manifest {
	return []resources.Manifest{{File: "the file", Document: api.Document{Resource: i.res, JSON: i.raw}}}
}

// quoted is a JSON string.
func quoted(text string) json.RawMessage {
	out, _ := json.Marshal(text) // text always encodes
	return out
}
