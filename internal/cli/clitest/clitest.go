// Package clitest is a command line on a store in memory, or on a real API server, for tests.
//
// In: arguments and standard input. Out: exit code and what was said.
package clitest

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

// Patience is for what must come from a store of the test's own, on a machine that has much else to do.
const Patience = 2 * time.Minute

// CLI is a command line on a store in memory.
type CLI struct {
	T     *testing.T
	Store storetest.InMemory
	// Execute is cli.Execute, which this package cannot import: its parts use it in their tests.
	Execute func(context.Context, *conn.Env, []string) int
}

// New is a command line on an empty store, of the kind that Main is at.
func New(t *testing.T, execute func(context.Context, *conn.Env, []string) int) *CLI {
	return &CLI{t, storetest.New(t), execute}
}

// Main runs the tests of a package in internal/cli, where their testdata is, on each kind of store in memory, or on a real API server.
func Main(m *testing.M) {
	if err := os.Chdir(".."); err != nil {
		panic(err)
	}
	MainHere(m)
}

// Env is the environment of a command that is patient with its datastore.
func Env(stdio console.Stdio) *conn.Env {
	e := &conn.Env{Stdio: stdio}
	e.Conn.Timeout = Patience
	return e
}

// Env is a command's environment on the store.
func (c *CLI) Env(stdio console.Stdio) *conn.Env {
	e := Env(stdio)
	e.Conn.Open = func(context.Context) (datastore.Store, func(), error) { return c.Store, func() {}, nil }
	return e
}

// On is the same store for another test.
func (c *CLI) On(t *testing.T) *CLI { return &CLI{t, c.Store, c.Execute} }

// Run runs a command with text on standard input.
func (c *CLI) Run(in string, args ...string) (code int, out, errs string) {
	c.T.Helper()
	var stdout, stderr bytes.Buffer
	code = c.Execute(c.T.Context(), c.Env(console.Stdio{In: strings.NewReader(in), Out: &stdout, Err: &stderr}), args)
	return code, stdout.String(), stderr.String()
}

// Want runs a command that must end with code, and returns all it said.
func (c *CLI) Want(code int, in string, args ...string) string {
	c.T.Helper()
	got, out, errs := c.Run(in, args...)
	if got != code {
		c.T.Errorf("twill %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out, errs)
	}
	return out + errs
}

// Raw puts a value into the store that no command would.
func (c *CLI) Raw(kindAndName, value string) {
	c.T.Helper()
	if _, err := c.Store.Create(c.T.Context(), api.Update{Key: api.ResourcesPrefix + kindAndName, Value: []byte(value)}); err != nil {
		c.T.Fatal(err)
	}
}

// Put is raw, for what may be there.
func (c *CLI) Put(kindAndName, value string) {
	c.T.Helper()
	if err := datastore.Put(c.T.Context(), c.Store, api.Update{Key: api.ResourcesPrefix + kindAndName, Value: []byte(value)}); err != nil {
		c.T.Fatal(err)
	}
}

// Outrun makes another writer come first at the next so many updates.
func (c *CLI) Outrun(updates int) {
	c.Store.Fail(func(o memstore.Op) error {
		if o.Verb == "update" && updates > 0 {
			updates--
			return datastore.ErrConflict
		}
		return nil
	})
}

func (c *CLI) Stored(kindAndName string) string {
	u, err := c.Store.Get(c.T.Context(), api.ResourcesPrefix+kindAndName)
	if err != nil {
		return err.Error()
	}
	return string(u.Value)
}

var position = regexp.MustCompile(`("?kind"?: "?\w+List"?,?\n(?: *"apiVersion": .*\n)? *"?metadata"?:(?: \{)?\n *"?resourceVersion"?: ).*`)

// WithoutPositions is what get printed, without the positions of lists where the store has another at each look.
func WithoutPositions(text string) string {
	if !storetest.IsPoor() {
		return text
	}
	return position.ReplaceAllString(text, "$1…")
}

// Revision is that of what is stored.
func (c *CLI) Revision(kindAndName string) string {
	c.T.Helper()
	u, err := c.Store.Get(c.T.Context(), api.ResourcesPrefix+kindAndName)
	if err != nil {
		c.T.Fatal(err)
	}
	return u.Revision.String()
}

// Equal compares texts without what stands at the end of lines.
func Equal(t *testing.T, got, want string) {
	t.Helper()
	trim := func(s string) string {
		var out []string
		for l := range strings.Lines(strings.Trim(s, "\n")) {
			out = append(out, strings.TrimRight(l, " \n"))
		}
		return strings.Join(out, "\n")
	}
	if trim(got) != trim(want) {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

var age = regexp.MustCompile(`\b\d[\dsmhdy]*[smhdy]\b *$`)

// Ageless is text in which each row's last column, an AGE, is one second: what time it is must decide no test.
func Ageless(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(age.ReplaceAllString(strings.TrimSuffix(line, "\n"), "1s") + "\n")
	}
	return b.String()
}

func Contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is not in:\n%s", p, text)
		}
	}
}

func File(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const Prod = "testdata/prod.yaml"

// ClearStoreEnv takes away what the environment of this test says of a datastore.
func ClearStoreEnv(t *testing.T) {
	t.Helper()
	for _, e := range os.Environ() {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "ETCD_") || strings.HasPrefix(name, "FELIX_") || strings.HasPrefix(name, "TWILL_") || strings.HasPrefix(name, "K8S_") || name == "DATASTORE_TYPE" || strings.HasPrefix(name, "KUBECONFIG") || name == "CALICO_API_GROUP" {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
}

// Everything is the store without revisions.
func Everything(t *testing.T, s datastore.Store) map[string]string {
	t.Helper()
	snap, err := s.List(t.Context(), api.Root)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, u := range snap.Items {
		out[u.Key] = string(u.Value)
	}
	return out
}

func TierNamed(names ...string) string {
	var out []string
	for _, n := range names {
		out = append(out, "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: "+n+"}\nspec: {order: 7}\n")
	}
	return strings.Join(out, "---\n")
}

func Gns(names ...string) string {
	return strings.ReplaceAll(strings.ReplaceAll(TierNamed(names...), "Tier", "GlobalNetworkSet"), "order: 7", "nets: [10.0.0.0/8]")
}

// WithAddresses is a cluster with addresses, of which a few are leaked.
func WithAddresses(c *CLI) *CLI {
	c.T.Helper()
	c.Fill("testdata/ipam.jsonl")
	c.Want(0, "", "datastore", "unlock") // an import leaves it locked
	return c
}

// Fill imports an export into the empty store. In an API server it makes the nodes and the pods as well, which an import would want there.
func (c *CLI) Fill(export string) {
	c.T.Helper()
	if !OnAPIServer() {
		c.Want(0, "", "datastore", "import", "-f", export)
		return
	}
	text, err := os.ReadFile(export)
	if err != nil {
		c.T.Fatal(err)
	}
	for dec := json.NewDecoder(bytes.NewReader(text)); dec.More(); {
		var e struct {
			Key   string
			Value []byte
		}
		if err := dec.Decode(&e); err != nil {
			c.T.Fatal(err)
		}
		if _, err := c.Store.Create(c.T.Context(), api.Update{Key: e.Key, Value: e.Value}); err != nil {
			c.T.Fatal(err)
		}
	}
	c.Want(0, "", "datastore", "lock")
}

func IpamKeys(c *CLI, keys ...string) (out []string) {
	c.T.Helper()
	for _, k := range keys {
		u, err := c.Store.Get(c.T.Context(), api.IPAMPrefix+k)
		if err != nil {
			c.T.Fatal(err)
		}
		out = append(out, string(u.Value))
	}
	return out
}

// NothingSet takes away what the machine's environment says of addresses and pools.
func NothingSet(t *testing.T) {
	t.Helper()
	for _, name := range []string{
		"IP", "IP6", "IP_AUTODETECTION_METHOD", "IP6_AUTODETECTION_METHOD", "AS", "DISABLE_NODE_IP_CHECK", "AUTODETECT_POLL_INTERVAL",
		"NO_DEFAULT_POOLS", "CALICO_IPV4POOL_CIDR", "CALICO_IPV6POOL_CIDR", "CLUSTER_TYPE", "CALICO_K8S_NODE_REF",
	} {
		t.Setenv(name, "")
	}
}

const Web = `apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: web, namespace: prod}
spec: {selector: app == "web", ingress: [{action: Allow}]}
`

// Step is a command line, its standard input, and the exit code and output that it must have.
type Step struct {
	Name, In, Args string
	Code           int
	Want           string
}

// Follow runs the steps one after the other on one store, each as a subtest.
func (c *CLI) Follow(steps ...Step) {
	for _, s := range steps {
		c.T.Run(s.Name, func(t *testing.T) {
			cc := c.On(t)
			Equal(t, cc.Want(s.Code, s.In, Words(s.Args)...), s.Want)
		})
	}
}

// Words splits at blanks that are not in single quotes.
func Words(text string) []string {
	var out []string
	for i, part := range strings.Split(text, "'") {
		if i%2 == 1 {
			out = append(out, part)
			continue
		}
		out = append(out, strings.Fields(part)...)
	}
	return out
}

var DenyWeb = strings.Replace(Web, "Allow", "Deny", 1)

// Tier is a tier with this in its spec.
func Tier(name, spec string) string {
	return "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: " + name + "}\nspec: {" + spec + "}\n"
}
