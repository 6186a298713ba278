package archtest

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/twillnet/twill/"

type pkg struct {
	ImportPath, Dir, Doc               string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

func packages(t *testing.T) []pkg {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Doc,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var ps []pkg
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		ps = append(ps, p)
	}
	if len(ps) < 5 {
		t.Fatalf("go list found %d packages", len(ps))
	}
	return ps
}

// layers say who may import whom: a package sees its own tree and lower layers (ARCHITECTURE.md). The longest prefix wins.
var layers = map[string]int{
	"api": 0, "api/dataplanepb": 0, "api/felixpb": 0,
	"internal/intent": 1, "internal/config": 1, "internal/datastore": 1, "internal/kernel": 1, "internal/dataplane/delta": 1,
	"internal/datastore/memstore": 2, "internal/datastore/etcdstore": 2, "internal/datastore/storetest": 3, "internal/datastore/member": 2, "internal/datastore/etcdadmin": 3, "internal/datastore/etcdproxy": 5, "internal/datastore/stores": 4, "internal/datastore/kubestore": 3,
	"internal/syncer": 2, "internal/calc": 2, "internal/translate": 2, "internal/verdict": 2, "internal/dataplane/rules": 2, "internal/dataplane/desired": 2, "internal/ifmon": 2,
	"internal/dataplane/attribution": 2, "internal/autohep": 2, "internal/bgp/plan": 2, "internal/bgp/bfd": 2, "internal/bgp/speaker": 3, "internal/bgp/birdconf": 3, "internal/bgp/confd": 3, "internal/bgp/birdctl": 2, "internal/bgp/nodestatus": 4, "internal/bgp/daemon": 5,
	"internal/dataplane/classify": 2, "internal/dataplane/nft": 3, "internal/dataplane/fib": 3, "internal/dataplane/tunnel": 3, "internal/dataplane/host": 3, "internal/dataplane/shape": 3, "internal/dataplane/proxy": 3, "internal/dataplane/sim": 3,
	"internal/ipam": 3, "internal/controller": 3, "internal/relay": 3, "internal/relay/discovery": 4, "internal/relay/process": 6, "internal/dataplane/revoke": 3, "internal/dataplane/flows": 3, "internal/dataplane/iptables": 3,
	"internal/dataplane": 4, "internal/status": 2, "internal/status/statusfile": 3, "internal/cni": 4, "internal/libnetwork": 5, "internal/attach": 5, "internal/attach/wire": 1, "internal/health": 4, "internal/metrics": 4, "internal/serve": 4, "internal/upkeep": 5, "internal/tunneladdr": 5, "internal/kubemirror": 5,
	"internal/doctor": 3, "internal/hostfacts": 4, "internal/clustercheck": 4, "internal/resources": 4, "internal/reach": 4, "internal/leftovers": 5, "internal/simulate": 5, "internal/nodeaddr": 2, "internal/nodekeep": 5,
	"internal/orchestrator": 5, "internal/dhcp/subnet": 1, "internal/dhcp": 3, "internal/dhcp/dhcpd": 5, "internal/leader": 1, "internal/logs": 1, "internal/usage": 4, "internal/kubecontrollers": 6, "internal/agent": 6, "internal/node": 6, "internal/cli": 6, "internal/lab": 6, "internal/outagetest": 6, "internal/podtest": 6,
	"cmd/twill": 7, "cmd/twill-cni": 7,
	"internal/bench": 7, "internal/image": 0, "internal/kubecluster": 7, "hack/kubecluster": 8, "hack/bench": 8, "hack/image": 7, "hack/fanout": 7, "hack/kube": 7, "hack/vm": 7, "internal/kubetest": 3, "internal/seedtest": 0, "internal/terminal": 0, "internal/upstreamtest": 0, "internal/archtest": 8, "internal/agreetest": 8, "internal/chaostest": 8,
}

// family is a tree whose packages may import each other: a parent composes its parts.
func layerOf(path string) (tree string, layer int) {
	path = strings.TrimPrefix(path, module)
	layer = -1
	for t, l := range layers {
		if (path == t || strings.HasPrefix(path, t+"/")) && len(t) >= len(tree) {
			tree, layer = t, l
		}
	}
	return tree, layer
}

// partOf are trees that a package may import although they are not below it.
// The reasons: a parent composes its own parts; the command line starts the
// daemons and the lab.
var allowed = map[string][]string{
	"internal/dataplane/desired":  {"internal/dataplane/rules", "internal/dataplane/classify"}, // decides in whose forms
	"internal/dataplane/classify": {"internal/dataplane/rules"},                                // compiles them
	"internal/calc":               {"internal/translate"},                                      // a staged policy of Kubernetes
	"internal/verdict":            {"internal/translate"},
	"internal/cli":                {"internal/leftovers", "internal/agent", "internal/kubecontrollers", "internal/bgp/daemon", "internal/relay/process", "internal/node", "internal/lab"},
}

func TestImportsFollowTheLayers(t *testing.T) {
	for _, p := range packages(t) {
		tree, layer := layerOf(p.ImportPath)
		if layer < 0 {
			t.Errorf("%s: has no layer; add it to layers", p.ImportPath)
			continue
		}
		for _, imp := range p.Imports {
			if !strings.HasPrefix(imp, module) {
				continue
			}
			depTree, depLayer := layerOf(imp)
			switch {
			case depTree == tree, depLayer < layer, slices.Contains(allowed[tree], depTree):
			default:
				t.Errorf("%s (layer %d) imports %s (layer %d)", p.ImportPath, layer, imp, depLayer)
			}
			if strings.HasPrefix(tree, "internal/kernel") && !strings.HasPrefix(depTree, "internal/kernel") {
				t.Errorf("%s imports %s: kernel speaks netip and its own values", p.ImportPath, imp)
			}
			if strings.HasPrefix(tree, "internal/dataplane") && (depTree == "api" || strings.HasPrefix(depTree, "internal/datastore")) {
				t.Errorf("%s imports %s: dataplane meets the rest in intent", p.ImportPath, imp)
			}
		}
	}
}

func TestPureTreesStayPure(t *testing.T) {
	pure := []string{"api", "internal/intent", "internal/calc", "internal/verdict", "internal/dataplane/delta", "internal/dataplane/rules", "internal/dataplane/desired", "internal/dataplane/classify", "internal/autohep", "internal/bgp/plan", "internal/bgp/birdconf", "internal/nodeaddr", "internal/doctor"}
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if !slices.ContainsFunc(pure, func(t string) bool { return path == t || strings.HasPrefix(path, t+"/") }) {
			continue
		}
		if path == "api/relaypb" || path == "api/endpointpb" || path == "api/dataplanepb" || path == "api/felixpb" { // generated: what a message is on the wire
			continue
		}
		for _, imp := range p.Imports {
			if slices.Contains([]string{"os", "net", "sync", "context", "log/slog", "log"}, imp) {
				t.Errorf("%s imports %s: it must stay pure", p.ImportPath, imp)
			}
		}
	}
}

// TestWhatDecidesKnowsNoBackend: what is desired is the same whatever makes it so (decision 028). What the mark of a packet looks like,
// or the name of a set in the kernel, is a reconciler's.
func TestWhatDecidesKnowsNoBackend(t *testing.T) {
	deciders := []string{"internal/dataplane/desired", "internal/dataplane/rules", "internal/dataplane/classify"}
	for _, p := range packages(t) {
		if !slices.Contains(deciders, strings.TrimPrefix(p.ImportPath, module)) {
			continue
		}
		for _, imp := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			tree, _ := layerOf(imp)
			if backend := strings.HasPrefix(tree, "internal/dataplane/") && !slices.Contains(deciders, tree); backend && tree != "internal/dataplane/sim" || strings.HasPrefix(tree, "internal/kernel") {
				t.Errorf("%s imports %s", p.ImportPath, imp)
			}
		}
	}
}

// decisions are what only packages that decide name: a reconciler that asks for a policy's rules, or for what an endpoint is asked by,
// has begun to decide; so has one that says why a packet is denied, or how one source is of a NAT's.
var decisions = map[string][]string{
	"rules": {"Policy", "Endpoint", "HostEndpoint", "Spoofable", "Silent", "Mute", "Rejects", "Sets", "PolicyChain", "EndpointChain", "HostChain", "SilentChain", "SpoofChain"},
	"intent": {
		"Policy", "PolicyID", "Endpoint", "EndpointID", "Group", "Groups", "Stages", "Tier", "Rule", "Allow", "Deny", "Pass", "Ingress", "Egress", "Workload", "Host",
		"ToHostDrop", "ToHostReturn", "ToHostAccept", "Failsafe", "NATOutgoing", "RuleID", "NoRule", "Reason*",
	},
	"nftables": {"MatchL4Proto"}, // what a packet must be is a term or a condition
}

// forms are the values that only packages that decide make: a reconciler reads them. What it takes out of one may be put into a rule, to
// ask what it means for a family.
var forms = map[string][]string{
	"rules":   {"Term", "Chain"},
	"match":   {"Term"},
	"desired": {"Guard", "Cond", "Hook", "Source", "Link", "Set", "Changes"},
	"intent":  {"Decision", "Peer", "HostSettings", "LogSettings", "PortRange", "Outcome"},
}

// reconcilers carry out what package desired decides.
var reconcilers = []string{"internal/dataplane/nft", "internal/dataplane/iptables"}

func TestReconcilersDecideNothing(t *testing.T) {
	found := 0
	for _, p := range packages(t) {
		if !slices.Contains(reconcilers, strings.TrimPrefix(p.ImportPath, module)) {
			continue
		}
		found++
		for _, f := range p.GoFiles {
			src, err := os.ReadFile(filepath.Join(p.Dir, f))
			if err != nil {
				t.Fatal(err)
			}
			for _, what := range decides(t, src) {
				t.Errorf("%s/%s %s: what follows from it is decided in package desired", p.ImportPath, f, what)
			}
		}
	}
	if found != len(reconcilers) {
		t.Errorf("found %d of %v", found, reconcilers)
	}
}

// decides finds what a reconciler's file names or makes that only those who decide may, under whatever name it imports their packages.
func decides(t *testing.T, src []byte) (out []string) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	of := map[string]string{} // packages by the names that the file gives them
	for _, imp := range file.Imports {
		path := strings.Trim(imp.Path.Value, `"`)
		name := path[strings.LastIndex(path, "/")+1:]
		switch {
		case imp.Name == nil:
			of[name] = name
		case imp.Name.Name == "." && (decisions[name] != nil || forms[name] != nil):
			out = append(out, "imports all names of "+path)
		default:
			of[imp.Name.Name] = name
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && slices.ContainsFunc(decisions[of[x.Name]], func(d string) bool {
				begin, all := strings.CutSuffix(d, "*")
				return d == n.Sel.Name || all && strings.HasPrefix(n.Sel.Name, begin)
			}) {
				out = append(out, "names "+of[x.Name]+"."+n.Sel.Name)
			}
		case *ast.CompositeLit:
			kind := n.Type
			if list, ok := kind.(*ast.ArrayType); ok {
				kind = list.Elt
			}
			sel, ok := kind.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if x, ok := sel.X.(*ast.Ident); ok && len(n.Elts) > 0 && slices.Contains(forms[of[x.Name]], sel.Sel.Name) {
				out = append(out, "makes a "+of[x.Name]+"."+sel.Sel.Name)
			}
		}
		return true
	})
	return out
}

// TestADecisionIsFound puts back what was in package nft once, and what could be put there.
func TestADecisionIsFound(t *testing.T) {
	for _, tt := range []struct{ name, code, want string }{
		{"a denial of its own", `var x = []desired.Guard{{Comment: why, By: intent.Decision{Reason: why, Rule: intent.RuleID{Index: intent.NoRule}}}}`, "makes a desired.Guard, makes a intent.Decision, names intent.RuleID, names intent.NoRule"},
		{"a protocol that nobody asks for", `var x = nftables.MatchL4Proto(proto)`, "names nftables.MatchL4Proto"},
		{"a reason", `var x = intent.ReasonClosed`, "names intent.ReasonClosed"},
		{"an endpoint's rules", `var x = rules.Endpoint(e, d)`, "names rules.Endpoint"},
		{"under another name", `var x other.PolicyID`, "names intent.PolicyID"},
		{"what packets to the host become", `func f(h int) bool { return h == intent.ToHostReturn }`, "names intent.ToHostReturn"},
		{"what it is told", `func f(g desired.Guard) bool { return g.Do == desired.Drop && g.Source.Ports == (intent.PortRange{}) }`, ""},
		{"a rule as one family sees it", `func f(g desired.Guard) rules.Rule { return rules.Rule{Terms: g.Terms} }`, ""},
	} {
		src := `package p
import (
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	other "github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/nftables"
)
` + tt.code
		if got := strings.Join(decides(t, []byte(src)), ", "); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
}

// doors says who alone may import something.
var doors = map[string][]string{
	"github.com/vishvananda/":          {"internal/kernel"},
	"golang.org/x/sys/unix":            {"internal/kernel"},
	"github.com/cilium/ebpf":           {"internal/kernel"},
	"os/exec":                          {"internal/kernel", "internal/lab", "internal/node", "internal/archtest", "internal/bench", "internal/cli", "internal/kubetest", "internal/podtest", "internal/kubecluster", "hack/vm"}, // vm: QEMU; bench: what it compares with; cli: the user's editor, see edit.go, and BIRD, see bird.go
	"gopkg.in/natefinch/lumberjack.v2": {"internal/logs"},
	"go.etcd.io/":                      {"internal/datastore"},
	"go.etcd.io/etcd/etcdutl":          {"internal/datastore/etcdadmin"},
	etcdstore:                          {"internal/datastore"},
	"github.com/osrg/gobgp":            {"internal/bgp/speaker"},
	"github.com/pelletier/go-toml":     {"internal/bgp/confd"},
	"github.com/spf13/cobra":           {"internal/cli", "cmd/twill"},
	"github.com/aymanbagabas/go-udiff": {"internal/cli"},
	"charm.land/lipgloss":              {"internal/terminal"},
	"github.com/charmbracelet":         {"internal/terminal"},
	"text/tabwriter":                   {},
	"golang.zx2c4.com/wireguard":       {"internal/kernel/wg"},
	"k8s.io/client-go":                 {"internal/cli/console", "internal/datastore/kubestore"},
	"k8s.io/api/":                      {"internal/translate", "internal/datastore/kubestore"},
	"k8s.io/apimachinery":              {"internal/translate", "internal/cli/show", "internal/datastore/kubestore"},
	"sigs.k8s.io/json":                 {"internal/translate", "internal/cli/console"},
	"sigs.k8s.io/network-policy-api":   {"internal/translate"},
	"sigs.k8s.io/yaml":                 {"api", "internal/cli", "internal/upstreamtest", "internal/kubetest"},
	"github.com/containernetworking":   {"internal/cni"},
	"github.com/gaissmai/bart":         {"internal/dataplane/classify"},
	"github.com/insomniacslk/dhcp":     {"internal/dhcp"},
	"github.com/mdlayher/ndp":          {"internal/dhcp/advert"},
	"github.com/google/uuid":           {"internal/resources", "internal/cli/ipam"},
	"github.com/prometheus":            {"internal/metrics", "internal/agent", "internal/bgp/daemon", "internal/kubecontrollers", "internal/relay/process"},
	"github.com/spf13/pflag":           {"internal/cli"},
	"go.uber.org/zap":                  {"internal/datastore"},
	"golang.org/x/sync":                {"internal/agent", "internal/bgp/daemon", "internal/controller", "internal/kubecontrollers", "internal/nodekeep", "internal/relay/process", "internal/lab", "internal/bench", "internal/kubecluster"},
	"golang.org/x/time":                {"internal/dhcp/dhcpd"},
	"google.golang.org/grpc":           {"internal/datastore/etcdstore", "internal/datastore/etcdproxy", "internal/relay", "api/relaypb", "api/endpointpb", "api/dataplanepb", "api/felixpb", "internal/dataplane/remote", "internal/dataplane/felixbackend", "internal/dataplane/policysync", "internal/orchestrator"},
	"google.golang.org/protobuf":       {"internal/datastore/etcdproxy", "internal/bgp/speaker", "internal/relay", "api/relaypb", "api/endpointpb", "api/dataplanepb", "api/felixpb", "internal/dataplane/remote", "internal/dataplane/felixbackend", "internal/dataplane/policysync", "internal/orchestrator"},
	"github.com/klauspost/compress":    {"internal/relay"},
	"github.com/twillnet/twill/cmd":    {},
}

// TestEachRequirementHasADoor: what go.mod requires for code of ours is imported where docs/dependencies.md says, and nowhere else.
func TestEachRequirementHasADoor(t *testing.T) {
	b, err := os.ReadFile("../../go.mod")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, m := range requirement.FindAllStringSubmatch(string(b), -1) {
		if m[2] != "" {
			continue // indirect
		}
		found++
		if !slices.ContainsFunc(slices.Collect(maps.Keys(doors)), func(door string) bool { return strings.HasPrefix(m[1]+"/", strings.TrimSuffix(door, "/unix")) }) {
			t.Errorf("go.mod requires %s, which doors does not name: say there and in docs/dependencies.md who may import it", m[1])
		}
	}
	if found < 15 {
		t.Errorf("found %d direct requirements in go.mod", found)
	}
}

var requirement = regexp.MustCompile(`(?m)^\t(\S+) v\S+( // indirect)?$`)

func TestEachDependencyHasOneDoor(t *testing.T) {
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		for _, imp := range p.Imports {
			for door, users := range doors {
				if strings.HasPrefix(imp, door) && !slices.ContainsFunc(users, func(u string) bool { return path == u || strings.HasPrefix(path, u+"/") }) {
					t.Errorf("%s imports %s; only %v may", p.ImportPath, imp, users)
				}
			}
		}
	}
}

const etcdstore = module + "internal/datastore/etcdstore"

// faultsOfEtcd are tests that do to etcd itself what may happen to it: compactions, other leaders, no space. What they test opens its
// datastore as everybody does.
var faultsOfEtcd = []string{module + "internal/chaostest", module + "internal/outagetest", module + "internal/syncer"}

// TestNobodyNamesAStore holds tests, too, to opening the datastore that a [datastore.Config] says.
func TestNobodyNamesAStore(t *testing.T) {
	for _, p := range packages(t) {
		if strings.HasPrefix(p.ImportPath, module+"internal/datastore") {
			continue
		}
		for _, imp := range slices.Concat(p.TestImports, p.XTestImports) {
			if strings.HasPrefix(imp, etcdstore) || strings.HasPrefix(imp, "go.etcd.io/") && !slices.Contains(faultsOfEtcd, p.ImportPath) {
				t.Errorf("a test of %s imports %s; use stores.Open", p.ImportPath, imp)
			}
		}
	}
}

func TestNamesSayWhatAPackageIs(t *testing.T) {
	for _, p := range packages(t) {
		name := p.ImportPath[strings.LastIndex(p.ImportPath, "/")+1:]
		if slices.Contains([]string{"util", "utils", "common", "helper", "helpers", "types", "base"}, name) {
			t.Errorf("%s: the name says nothing", p.ImportPath)
		}
		if p.Doc == "" && len(p.GoFiles) > 0 {
			t.Errorf("%s: has no package doc", p.ImportPath)
		}
	}
}
