package migration

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/translate"
)

// Upstream is an export in the form that upstream's `calicoctl datastore migrate` has: resources as its users see them, a list for each kind;
// the ClusterInformation; and the data of address management. It has less than a list of entries: uids and times are made anew, and what Kubernetes has
// itself is not in it. The source of the form is that command's documentation and public source.
type Upstream struct {
	Lists   [][]byte // JSON, each the list of a kind
	Cluster []byte   // JSON
	IPAM    []byte   // JSON
	LeftOut []Step   // what is not in it, with a note where that is for a user to know
	Nodes   []string // nodes that have another name in it, or that are none of Kubernetes'; each in words
}

// separator is the line between the parts of a file.
const separator = "==="

// Write writes the file. Yaml turns a document of JSON into YAML.
func (u Upstream) Write(w io.Writer, yaml func(doc []byte) ([]byte, error)) error {
	var b bytes.Buffer
	for _, list := range u.Lists {
		text, err := yaml(list)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte(separator+"\n")) { // in a text of several lines: upstream would take it for the end of the part
			text = fmt.Appendln(nil, string(list)) // which is YAML, too, and has each text in one line
		}
		fmt.Fprintf(&b, "%s---\n", text)
	}
	for _, part := range [][]byte{u.Cluster, u.IPAM} {
		fmt.Fprintf(&b, "%s\n", separator)
		if err := json.Indent(&b, part, "", "  "); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	_, err := w.Write(b.Bytes())
	return err
}

// pair is a key of address management in such a file.
type pair struct {
	Key   string
	Value json.RawMessage
	TTL   int64 // nanoseconds; nothing of address management goes by itself
}

// addresses is the last part of such a file.
type addresses struct {
	Affinities []pair `json:"block_affinities,omitempty"`
	Blocks     []pair `json:"blocks,omitempty"`
	Handles    []pair `json:"handles,omitempty"`
	Config     *pair  `json:"config,omitempty"`
}

// made are the metadata that a store decides, and the next one decides anew.
var made = []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "managedFields", "selfLink"}

// ToUpstream makes such a file of entries, of which none is transient. Nodes, and what refers to them, have the names that their references to Kubernetes say. It is [*RefusedError]
// if something of it cannot be read, or two nodes would have one name. Of two of which one is called so anyway, and nothing names the other, that one is left out.
func ToUpstream(es []Entry) (Upstream, error) {
	t := toUpstream{lists: map[string][]any{}, stale: map[string]bool{}, taken: map[string]string{}}
	t.names = t.nodeNames(es)
	var own addresses
	for _, e := range es {
		var err error
		switch ref, is := api.ParseKey(e.Key); {
		case strings.HasPrefix(e.Key, api.IPAMPrefix):
			err = t.address(e, &own)
		case !is:
			t.leaveOut(e, "the file has no place for it")
		default:
			err = t.resource(e, ref)
		}
		if err != nil {
			t.problems = append(t.problems, nameOf(e.Key)+" "+err.Error())
		}
	}
	if t.out.Cluster == nil {
		t.problems = append(t.problems, "there is no clusterinformation/default: lock the datastore first")
	}
	if len(t.problems) > 0 {
		return Upstream{}, &RefusedError{t.problems}
	}
	for _, k := range api.Kinds() {
		if items := t.lists[k.Kind]; len(items) > 0 {
			list, err := json.Marshal(map[string]any{"apiVersion": api.GroupVersion, "kind": k.Kind + "List", "metadata": map[string]any{}, "items": items})
			if err != nil {
				return Upstream{}, err
			}
			t.out.Lists = append(t.out.Lists, list)
		}
	}
	var err error
	t.out.IPAM, err = json.Marshal(own)
	return t.out, err
}

type toUpstream struct {
	out      Upstream
	lists    map[string][]any  // by kind
	names    map[string]string // of nodes, by those in the entries
	stale    map[string]bool   // nodes whose name in Kubernetes another has by itself, and that nothing else names
	taken    map[string]string // which entry has a kind, namespace and name in the file
	problems []string
}

func (t *toUpstream) leaveOut(e Entry, note string) {
	t.out.LeftOut = append(t.out.LeftOut, Step{Key: e.Key, What: LeftOut, Note: note})
}

// nodeNames are the nodes' names in Kubernetes, by those that they have.
func (t *toUpstream) nodeNames(es []Entry) map[string]string {
	names, owner, silent := map[string]string{}, map[string]string{}, map[string]bool{}
	for _, e := range es {
		ref, is := api.ParseKey(e.Key)
		if !is || ref.Kind != api.KindNode {
			continue
		}
		name := inKubernetes(e)
		if silent[ref.Name] = name == ""; name == "" {
			name = ref.Name
		}
		if owner[name] == "" || ref.Name == name {
			owner[name] = ref.Name
		}
		names[ref.Name] = name
	}
	for _, node := range slices.Sorted(maps.Keys(names)) {
		switch name := names[node]; {
		case owner[name] == name && name != node && !refersTo(es, node):
			t.stale[node] = true
		case owner[name] != node:
			t.problems = append(t.problems, fmt.Sprintf("node/%s and node/%s are both called %s in Kubernetes: delete the one that is no more", owner[name], node, name))
		case silent[node]:
			t.out.Nodes = append(t.out.Nodes, fmt.Sprintf("node/%s says no name in Kubernetes (spec.orchRefs): an import there wants a node of this name, and upstream's passes over it", node))
		case name != node:
			t.out.Nodes = append(t.out.Nodes, fmt.Sprintf("node/%s is called %s in the file, as in Kubernetes", node, name))
		}
	}
	return names
}

// inKubernetes is a node's name there; empty: it says none.
func inKubernetes(e Entry) (name string) {
	st, err := api.DecodeStored(api.Update{Key: e.Key, Value: e.Value})
	if err != nil {
		return ""
	}
	for _, o := range st.Resource.(*api.Node).Spec.OrchRefs {
		if o.Orchestrator == translate.Orchestrator && o.NodeName != "" {
			name = o.NodeName
		}
	}
	return name
}

// refersTo reports whether an entry may name a node, but for the node itself and what configures it: an address, a peer, an endpoint.
// It errs on the side of yes.
func refersTo(es []Entry, node string) bool {
	quoted, _ := json.Marshal(node) // text always encodes
	return slices.ContainsFunc(es, func(e Entry) bool {
		ref, is := api.ParseKey(e.Key)
		if is && (ref.Kind == api.KindNode && ref.Name == node || slices.Contains(perNode, ref.Kind)) {
			return false
		}
		return strings.Contains(e.Key, "/"+node+"/") || strings.HasSuffix(e.Key, "-"+node) || bytes.Contains(e.Value, quoted) || bytes.Contains(e.Value, []byte(":"+node+`"`)) || bytes.Contains(e.Value, []byte("-"+node+`"`))
	})
}

// resource puts a resource into the list of its kind.
func (t *toUpstream) resource(e Entry, ref api.Ref) error {
	doc, err := api.UserJSON(api.Update{Key: e.Key, Value: e.Value})
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	switch why, is := kubernetesHas(ref, doc); {
	case is:
		t.leaveOut(e, why)
		return nil
	case ref.Kind == api.KindNode && t.stale[ref.Name]:
		t.leaveOut(e, fmt.Sprintf("Kubernetes calls it %s, as node/%[1]s, and nothing else names it", t.names[ref.Name]))
		return nil
	case ref.Kind == api.KindClusterInformation && ref.Name != resources.ClusterInfo.Name:
		t.leaveOut(e, "only default means anything")
		return nil
	case ref.Kind == api.KindClusterInformation:
		t.out.Cluster = doc
		return nil
	}
	tree, err := resources.Tree(doc)
	if err != nil {
		return err
	}
	item, ok := tree.(map[string]any)
	meta, ok1 := item["metadata"].(map[string]any)
	if !ok || !ok1 {
		return fmt.Errorf("has no metadata")
	}
	for _, name := range made {
		delete(meta, name)
	}
	item["apiVersion"], item["kind"] = api.GroupVersion, ref.Kind
	t.renameIn(ref, item, meta)
	if spec, ok := item["spec"].(map[string]any); ok && ref.Kind == api.KindFelixConfiguration {
		inLetters(spec)
	}
	name := ref.Kind + "/" + ref.Namespace + "/" + fmt.Sprint(meta["name"])
	if other := t.taken[name]; other != "" && ref.Kind != api.KindNode { // of nodes it is known
		return fmt.Errorf("and %s have one name in the file: delete the one that is no more", other)
	}
	t.taken[name] = nameOf(e.Key)
	t.lists[ref.Kind] = append(t.lists[ref.Kind], item)
	return nil
}

// kubernetesHas reports whether what is named is of Kubernetes' own, or of another part of the file, and what a user must know of that.
func kubernetesHas(ref api.Ref, doc []byte) (note string, is bool) {
	switch ref.Kind {
	case api.KindWorkloadEndpoint:
		var w api.WorkloadEndpoint
		if _ = json.Unmarshal(doc, &w); w.Spec.Orchestrator != translate.Orchestrator {
			return "it is no pod, and the file has no place for it", true
		}
		return "", true
	case api.KindLiveMigration:
		return "upstream's tools do not know the kind: let migrations of machines end before", true
	case api.KindProfile:
		if !strings.HasPrefix(ref.Name, "kns.") && !strings.HasPrefix(ref.Name, "ksa.") && ref.Name != api.BuiltinProfile().Meta().Name {
			return "it is of no namespace and no account, and the file has no place for it", true
		}
		return "", true
	case api.KindIPAMConfiguration, api.KindBlockAffinity, api.KindKubernetesService, api.KindKubernetesEndpointSlice:
		return "", true
	}
	k, _ := api.LookupKind(ref.Kind)
	return "", k.Policy && slices.ContainsFunc(copied, func(prefix string) bool { return strings.HasPrefix(ref.Name, prefix) })
}

// copied begin the names of policies that are copies of Kubernetes'.
var copied = []string{translate.PolicyPrefix, translate.ClusterPrefix, translate.AdminPrefix}

// perNode are kinds of which node.NAME is for one node, and refers those whose spec.node names one.
var (
	perNode = []string{api.KindFelixConfiguration, api.KindBGPConfiguration}
	refers  = []string{api.KindBGPPeer, api.KindHostEndpoint, api.KindCalicoNodeStatus}
)

// renameIn has a resource name nodes as Kubernetes does. Upstream leaves what refers to them by spec.node as it is, and so without effect.
func (t *toUpstream) renameIn(ref api.Ref, item, meta map[string]any) {
	switch node, of := strings.CutPrefix(ref.Name, "node."); {
	case ref.Kind == api.KindNode:
		meta["name"] = t.names[ref.Name]
	case slices.Contains(perNode, ref.Kind) && of && t.names[node] != "":
		meta["name"] = "node." + t.names[node]
	case slices.Contains(refers, ref.Kind):
		if spec, ok := item["spec"].(map[string]any); ok {
			t.rename(spec, "node")
		}
	}
}

// inLetters writes values that version 1 had in capitals as version 3 has them, which upstream's import takes alone.
func inLetters(spec map[string]any) {
	for _, field := range []string{"defaultEndpointToHostAction", "iptablesFilterAllowAction", "iptablesMangleAllowAction", "iptablesFilterDenyAction"} {
		if text, ok := spec[field].(string); ok && text != "" && text == strings.ToUpper(text) {
			spec[field] = text[:1] + strings.ToLower(text[1:])
		}
	}
}

// rename replaces a node's name in a field.
func (t *toUpstream) rename(in map[string]any, field string) {
	if name, ok := in[field].(string); ok && t.names[name] != "" {
		in[field] = t.names[name]
	}
}

// address puts a key of address management into its list.
func (t *toUpstream) address(e Entry, own *addresses) error {
	tree, err := resources.Tree(e.Value)
	doc, ok := tree.(map[string]any)
	if err != nil || !ok {
		return fmt.Errorf("cannot be read, and without it addresses would be given out twice: see twill ipam check")
	}
	owner, block, isAffinity := api.ParseAffinityKey(e.Key)
	handle, isHandle := api.ParseHandleKey(e.Key)
	_, isBlock := api.ParseBlockKey(e.Key)
	p := pair{Key: e.Key, Value: e.Value}
	switch {
	case e.Key == api.IPAMConfigKey:
		own.Config = &p
	case isAffinity:
		if name := t.names[owner.Name]; owner.Type == api.OwnerHost && name != "" {
			p.Key = api.AffinityKey(api.Owner{Type: owner.Type, Name: name}, block)
		}
		own.Affinities = append(own.Affinities, p)
	case isHandle:
		p.Key = api.HandleKey(t.handle(handle))
		own.Handles = append(own.Handles, p)
	case isBlock:
		t.renameInBlock(doc)
		p.Value = resources.InOrderOf(e.Value, doc)
		own.Blocks = append(own.Blocks, p)
	default:
		t.leaveOut(e, "the file has no place for it")
	}
	return nil
}

// tunnels begin the handles of addresses of nodes' ends of tunnels; then comes the node's name.
var tunnels = []string{"ipip-tunnel-addr-", "vxlan-tunnel-addr-", "vxlan-v6-tunnel-addr-", "wireguard-tunnel-addr-", "wireguard-v6-tunnel-addr-"}

func (t *toUpstream) handle(id string) string {
	for _, prefix := range tunnels {
		if node, is := strings.CutPrefix(id, prefix); is && t.names[node] != "" {
			return prefix + t.names[node]
		}
	}
	return id
}

func (t *toUpstream) renameInBlock(doc map[string]any) {
	if text, ok := doc["affinity"].(string); ok {
		if o, is := api.ParseOwner(text); is && o.Type == api.OwnerHost && t.names[o.Name] != "" {
			doc["affinity"] = api.Owner{Type: o.Type, Name: t.names[o.Name]}.String()
		}
	}
	t.rename(doc, "hostAffinity")
	attributes, _ := doc["attributes"].([]any)
	for _, a := range attributes {
		attribute, _ := a.(map[string]any)
		if id, ok := attribute["handle_id"].(string); ok {
			attribute["handle_id"] = t.handle(id)
		}
		for _, of := range []string{"secondary", "alternate"} {
			if owner, ok := attribute[of].(map[string]any); ok {
				t.rename(owner, api.AttributeNode)
			}
		}
	}
}
