package crds_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/apitest"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubetest"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/upstreamtest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }

// cluster is the API server of these tests, with the definitions, and the namespaces of package apitest's resources.
func cluster(t *testing.T) *kubetest.Server {
	t.Helper()
	s := kubetest.Start(t)
	s.Apply(t, documents(t, crds.Definitions(form.V3)))
	s.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: a}\n---\napiVersion: v1\nkind: Namespace\nmetadata: {name: b}\n")
	return s
}

func documents(t *testing.T, objects []map[string]any) string {
	t.Helper()
	text, err := crds.Documents(objects)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// collection is where objects of a kind are; false if the cluster holds none.
func collection(kind, namespace string) (string, bool) {
	k, ok := api.LookupKind(kind)
	if !ok {
		return "", false
	}
	for _, f := range form.Kinds(form.V3) {
		if f.Path == "/apis/"+string(form.V3) && f.Plural == k.Plural && k.Kind == kind && !k.View {
			if !k.Namespaced {
				return f.Path + "/" + f.Plural, true
			}
			return f.Path + "/namespaces/" + namespace + "/" + f.Plural, true
		}
	}
	return "", false
}

// request sends a document, and returns why the server refuses it; empty: it does not.
func request(t *testing.T, c *kubetest.Client, method, path, contentType, document string) string {
	t.Helper()
	resp, err := c.Do(t.Context(), method, path, contentType, []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode < 300 {
		return ""
	}
	var status struct{ Message string }
	if json.Unmarshal(text, &status) != nil || status.Message == "" {
		return string(text)
	}
	return status.Message
}

// judgedByAPI is what package api says of a document, and the resource as it would be stored.
func judgedByAPI(t *testing.T, document string) (api.FieldErrors, api.Resource) {
	t.Helper()
	docs, err := api.Decode([]byte(document))
	var errs api.FieldErrors
	switch {
	case errors.As(err, &errs):
		return errs, nil
	case err != nil || len(docs) != 1:
		t.Fatalf("%d documents, error %v\n%s", len(docs), err, document)
	}
	r := docs[0].Resource
	api.Default(r)
	return api.Validate(r), r
}

// inexpressible is what package api refuses and a definition cannot say, so that the API server takes it: at which path, for which
// reason. docs/kubernetes.md has the list, too.
var inexpressible = []struct{ what, path, reason string }{
	{"whether a selector can be read", `(?i)selector$`, `^selector |^global\(\) is possible only`},
	{"labels that only the system gives", `^metadata\.labels`, `by the system alone|profile alone`},
	{"names and size of a rule's annotations", `annotations`, `^is unknown|^have \d+ bytes`},
	{"a generated name", `^metadata\.generateName$`, `^is not possible here`},
	{"families of the prefixes of a rule", `[nN]ets(\[\d+\])?$`, `^has prefixes of|is not of IPv`},
	{"bits beyond the length of a prefix in a list", `[nN]ets\[\d+\]$|cidr$`, `has bits beyond its length`},
	{"IPv4 addresses written as IPv6", `[nN]ets\[\d+\]$`, `write it as an IPv4 prefix`},
	{"numbers of ports as text, where the protocol is missing", `[pP]orts$`, `^needs protocol TCP, UDP or SCTP`},
	{"a range of ports that ends before it begins", `ports\[\d+\]$`, `the lower first`},
	{"an AS number as text that is too large", `asNumber$`, `^AS number`},
	{"regular expressions, and lists of them", `interfacePattern$|interfaceExclude$|mtuIfacePattern$|logDebugFilenameRegex$`, ``},
	{"parts of an ipBlock that are elsewhere", `except\[\d+\]$`, `is not a part of`},
	{"communities that are not named", `communities\[\d+\]$`, `does not name`},
	{"objects of a list with the same name", `(communities|templates|ports)\[\d+\]`, `is there twice`},
	{"fields that this version does not know, which are kept", ``, `^unknown field`},
	{"fields that this version does not honour", ``, `does not honour`},
}

// expressible reports whether a definition can say one of the errors; where it cannot, used notes it.
func expressible(errs api.FieldErrors, used map[string]bool) bool {
	for _, e := range errs {
		found := false
		for _, x := range inexpressible {
			if regexp.MustCompile(x.path).MatchString(e.Path) && regexp.MustCompile(x.reason).MatchString(e.Reason) {
				found, used[x.what] = true, true
			}
		}
		if !found {
			return true
		}
	}
	return false
}

// narrow is the end of a path below what the server names: an element, or a member with a name of the user's.
var narrow = regexp.MustCompile(`(\[\d+\](\.generateName)?|\["[^"]*"\]|\.labels\..*|\.endPort)$`)

// names reports whether an answer of the server names the field of an error.
func names(why string, e *api.FieldError) bool {
	return strings.Contains(why, narrow.ReplaceAllString(e.Path, ""))
}

// TestTheAPIServerJudgesAsAPIDoes sends what package api is tested by to an API server: it takes what api accepts, as it is written and as it
// is stored, and refuses the rest at the same field, but for what is inexpressible.
func TestTheAPIServerJudgesAsAPIDoes(t *testing.T) {
	s := cluster(t)
	used := map[string]bool{}
	for _, c := range append(apitest.All(), ours...) {
		errs, r := judgedByAPI(t, c.Document())
		namespace := "default"
		if strings.Contains(c.Meta, "namespace: ") && r != nil {
			namespace = r.Meta().Namespace
		}
		path, ok := collection(c.Kind, namespace)
		if !ok || strings.Contains(c.Name, "a namespace that is") {
			continue
		}
		t.Run(c.Kind+" "+c.Name, func(t *testing.T) {
			why := request(t, s.Admin(), "POST", path+"?dryRun=All", "application/yaml", c.Document())
			switch {
			case len(errs) == 0 && why != "":
				t.Errorf("package api accepts it: %s\n%.500s", why, c.Document())
			case len(errs) > 0 && why == "" && expressible(errs, used):
				t.Errorf("package api refuses it: %v\n%.500s", errs, c.Document())
			case len(errs) > 0 && why != "" && !slices.ContainsFunc(errs, func(e *api.FieldError) bool { return names(why, e) }):
				t.Errorf("package api names another field: %v\nnot %s", errs, why)
			}
			if len(errs) == 0 {
				stored, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				if why := request(t, s.Admin(), "POST", path+"?dryRun=All", "application/json", string(stored)); why != "" {
					t.Errorf("as it is stored: %s\n%.500s", why, stored)
				}
			}
		})
	}
	for _, x := range inexpressible {
		if !used[x.what] {
			t.Errorf("%s: no case has it", x.what)
		}
	}
}

// ours are cases that package api's tables lack.
var ours = []apitest.Case{
	{Name: "a field that nobody knows", Kind: "GlobalNetworkPolicy", Meta: "name: a", Spec: "{selectr: all()}"},
	{Name: "a field that is not honoured", Kind: "FelixConfiguration", Meta: "name: default", Spec: "{istioAmbientMode: Enabled}"},
	{Name: "a range backwards", Kind: "GlobalNetworkPolicy", Meta: "name: a", Spec: "{ingress: [{action: Allow, protocol: TCP, destination: {ports: ['90:80']}}]}"},
	{Name: "a port as text without a protocol", Kind: "GlobalNetworkPolicy", Meta: "name: a", Spec: "{ingress: [{action: Allow, destination: {ports: ['80']}}]}"},
	{Name: "a port beyond the last", Kind: "GlobalNetworkPolicy", Meta: "name: a", Spec: "{ingress: [{action: Allow, protocol: TCP, destination: {ports: [65536]}}]}"},
	{Name: "such a port as text", Kind: "GlobalNetworkPolicy", Meta: "name: a", Spec: "{ingress: [{action: Allow, protocol: TCP, destination: {ports: ['65536']}}]}"},
	{Name: "the last port, in each form", Kind: "GlobalNetworkPolicy", Meta: "name: a", Spec: "{ingress: [{action: Allow, protocol: TCP, destination: {ports: [65535, '65535', '1:65535', 7z, z]}}]}"},
	{Name: "addresses of all forms", Kind: "GlobalNetworkSet", Meta: "name: a", Spec: "{nets: [192.0.2.1, 192.0.2.0/24, '::', '::/0', '2001:db8::1', '64:ff9b::192.0.2.1/128', '1:2:3:4:5:6:7:8']}"},
	{Name: "a prefix twice", Kind: "GlobalNetworkSet", Meta: "name: a", Spec: "{nets: [192.0.2.0/24, 192.0.2.0/24]}"},
	{Name: "an IPv4 address in eight groups", Kind: "GlobalNetworkSet", Meta: "name: a", Spec: "{nets: ['::ffff:192.0.2.1']}"},
	{Name: "an address of three numbers", Kind: "GlobalNetworkSet", Meta: "name: a", Spec: "{nets: [192.0.2]}"},
	{Name: "a length beyond the family's", Kind: "GlobalNetworkSet", Meta: "name: a", Spec: "{nets: [192.0.2.0/33]}"},
	{Name: "an AS number beyond the last", Kind: "BGPPeer", Meta: "name: a", Spec: "{peerIP: 192.0.2.1, asNumber: '4294967296'}"},
	{Name: "a port's name twice", Kind: "HostEndpoint", Meta: "name: a", Spec: "{node: n1, interfaceName: '*', ports: [{name: a, protocol: TCP, port: 1}, {name: a, protocol: 6, port: 2}]}"},
	{Name: "a port of ICMP by number", Kind: "HostEndpoint", Meta: "name: a", Spec: "{node: n1, interfaceName: '*', ports: [{name: a, protocol: 1, port: 1}]}"},
	{Name: "no strictness at all", Kind: "IPAMConfiguration", Meta: "name: default", Spec: "{}"},
	{Name: "a limit that is strict", Kind: "IPAMConfiguration", Meta: "name: default", Spec: "{strictAffinity: true, maxBlocksPerHost: 3}"},
	{Name: "a limit that is not", Kind: "IPAMConfiguration", Meta: "name: default", Spec: "{autoAllocateBlocks: true, maxBlocksPerHost: 3}"},
	{Name: "virtual machines keep their addresses", Kind: "IPAMConfiguration", Meta: "name: default", Spec: "{strictAffinity: true, kubeVirtVMAddressPersistence: Enabled}"},
	{Name: "virtual machines perhaps keep their addresses", Kind: "IPAMConfiguration", Meta: "name: default", Spec: "{strictAffinity: true, kubeVirtVMAddressPersistence: Perhaps}"},
	{Name: "another address management", Kind: "IPAMConfiguration", Meta: "name: other", Spec: "{strictAffinity: true}"},
	{Name: "reserved addresses", Kind: "IPReservation", Meta: "name: a", Spec: "{reservedCIDRs: [10.0.0.1, 10.0.0.0/30]}"},
	{Name: "reserved addresses that are none", Kind: "IPReservation", Meta: "name: a", Spec: "{reservedCIDRs: [ten]}"},
}

// TestTheAPIServerTakesWhatAPIAccepts has random resources in every form that upstream's types allow: what package api accepts of them, an
// API server takes.
func TestTheAPIServerTakesWhatAPIAccepts(t *testing.T) {
	s, a := cluster(t), upstreamtest.New(seedtest.Rand(t))
	for _, k := range upstreamtest.Kinds() {
		if _, ok := collection(k.Name, ""); !ok {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			accepted := 0
			for range 30 {
				document := a.Render(k.Write(a))
				errs, r := judgedByAPI(t, document)
				if len(errs) > 0 {
					continue
				}
				accepted++
				stored, err := json.Marshal(r)
				if err != nil {
					t.Fatal(err)
				}
				path, _ := collection(k.Name, r.Meta().Namespace)
				if ns := r.Meta().Namespace; ns != "" {
					s.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n", ns))
				}
				if why := request(t, s.Admin(), "POST", path+"?dryRun=All", "application/json", string(stored)); why != "" {
					t.Fatalf("%s\n%s", why, stored)
				}
			}
			if accepted == 0 {
				t.Error("package api accepts none of them")
			}
		})
	}
}
