package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/agent"
	bgpdaemon "github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/cli/caliconode"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cni"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/doctor/takeover"
	"github.com/twillnet/twill/internal/hostfacts"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/leftovers"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/terminal"
)

// outlook is what --take-over prints as a document.
type outlook struct {
	Node     string             `json:"node"`
	Stage    takeover.Stage     `json:"stage"`
	Findings []takeover.Finding `json:"findings"`
	Next     []string           `json:"next"`
	Back     []string           `json:"back,omitempty"` // how the host returns to upstream's agent
}

// takeOver says what a take-over from an upstream agent will change on this host, and what blocks it.
func (c *command) takeOver(cmd *cobra.Command, d *doctorFlags) error {
	undo, err := withFile(d.nodeEnv)
	if err != nil {
		return err
	}
	defer undo()
	d.byEnvironment(cmd.Flags())
	t, err := c.takeoverFacts(cmd.Context(), d)
	if err != nil {
		return err
	}
	out := outlook{Node: t.Node, Stage: takeover.StageOf(t), Findings: takeover.Judge(t)}
	out.Next, out.Back = takeover.Next(t, out.Findings), takeover.Back(t)
	err = c.Answer(d.output, console.Answer{Doc: out, Rows: ".findings", Name: ".check", Table: func(w io.Writer, wide bool) error {
		printOutlook(w, out, wide)
		return nil
	}})
	if err != nil {
		return err
	}
	if takeover.Blocked(out.Findings) {
		return console.Exit{Code: 1, Msg: ""}
	}
	return nil
}

// takeoverFacts gathers all that is judged. What cannot be read is among it.
func (c *command) takeoverFacts(ctx context.Context, d *doctorFlags) (*takeover.Facts, error) {
	p, end := c.Working("looking", 0)
	defer end()
	if err := d.Read(); err != nil {
		return nil, err
	}
	f := &doctor.Facts{Node: d.Node, BGP: doctor.BGP{Mode: d.bgp}}
	t := &takeover.Facts{Facts: f, Local: d.Layers, Force: d.force}
	cfg := d.Store(&c.Conn)
	cfg.DialTimeout = c.Conn.Timeout
	t.Kubernetes, t.Endpoints = cfg.Type == "kubernetes", cfg.Endpoints
	p.Now("the agent")
	if err := askAgent(ctx, d.agentAt, f); err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ECONNREFUSED) {
		t.AgentErr = f.Agent.Err
	}
	if own, err := agent.AskSettings(ctx, d.agentAt); err == nil {
		t.Local = own.Layers
	}
	p.Now(conn.Place(cfg))
	c.readData(ctx, cfg, d, t)
	p.Now("this host")
	if err := readTakenHost(ctx, t, d); err != nil {
		t.HostErr = err.Error()
	}
	return t, nil
}

// readData fills in what the datastore says.
func (c *command) readData(ctx context.Context, cfg datastore.Config, d *doctorFlags, t *takeover.Facts) {
	store, done, err := c.openData(ctx, cfg)
	if err != nil {
		t.Store.Err = err.Error()
		return
	}
	defer done()
	within := func(do func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(ctx, c.Conn.Timeout)
		defer cancel()
		return do(ctx)
	}
	_ = within(func(ctx context.Context) error { t.Store.Members = membersOf(ctx, store); return nil })
	world, planned := plan.New(), slices.Concat(plan.Prefixes(), plan.AgentPrefixes(), plan.WorkloadPrefixes(), plan.ServicePrefixes())
	world.Agent, world.Local = true, t.Local
	prefixes, failed := prefixesOf(store), map[string]string{}
	for _, prefix := range prefixes {
		err := within(func(ctx context.Context) error {
			snap, err := store.List(ctx, prefix)
			for _, u := range snap.Sorted() {
				t.Add(u)
				if slices.ContainsFunc(planned, func(prefix string) bool { return strings.HasPrefix(u.Key, prefix) }) {
					world.Update(u)
				}
			}
			return err
		})
		if err != nil {
			failed[strings.Trim(strings.TrimPrefix(prefix, api.ResourcesPrefix), "/")] = err.Error()
		}
		// One that is away would be waited for once for each kind; of one that refuses all of them, one reason is enough.
		if away := errors.Is(err, datastore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded); away || err != nil && len(failed) == len(prefixes) {
			t.Store.Err = err.Error()
			return
		}
	}
	for kind, why := range failed {
		t.ListFailed(kind, why)
	}
	t.Plan = world.Plan(t.Node)
	if err := within(func(ctx context.Context) error { return readAddresses(ctx, store, t) }); err != nil {
		t.IPAMErr = err.Error()
	}
	if err := within(func(ctx context.Context) error { return readReports(ctx, store, t) }); err != nil {
		t.ReportsErr = err.Error()
	}
	if err := within(func(ctx context.Context) error { return c.readPasswords(ctx, cfg, d, t) }); err != nil {
		t.ListFailed("passwords of BGP sessions", err.Error())
	}
}

func (c *command) openData(ctx context.Context, cfg datastore.Config) (datastore.Store, func(), error) {
	if c.Conn.Open != nil {
		return c.Conn.Open(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	s, err := stores.Open(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil
}

// prefixesOf are what to list: all resources at once, also of kinds that are not known; or where the store has no order, each kind, which may be refused.
func prefixesOf(s datastore.Store) (out []string) {
	if datastore.OrderOf(s) != nil {
		return []string{api.ResourcesPrefix}
	}
	for _, k := range api.Kinds() {
		if !k.View {
			out = append(out, api.KeyPrefix(k.Kind, ""))
		}
	}
	return out
}

// bpfFS is where programs and maps of eBPF are pinned.
const bpfFS = "/sys/fs/bpf"

// grace is the age below which an address without an endpoint is nobody's leak, as in `twill ipam check`.
const grace = 15 * time.Minute

func readAddresses(ctx context.Context, store datastore.Store, t *takeover.Facts) error {
	v, err := ipam.New(store, ipam.Config{}).ReadSurvey(ctx)
	if err != nil {
		return err
	}
	t.Blocks = len(v.Blocks)
	for _, b := range v.Blocks {
		if own, ok := b.Owner(); ok && own.Type == api.OwnerHost && own.Name == t.Node {
			t.OwnBlocks++
		}
	}
	for _, f := range v.Check(ipam.CheckOptions{Now: time.Now(), Grace: grace}) {
		what := f.Kind
		switch {
		case f.Address.IsValid():
			what = f.Address.String()
		case f.Block != "":
			what = "block " + f.Block
		case f.Handle != "":
			what = "handle " + f.Handle
		}
		t.IPAM = append(t.IPAM, takeover.Inconsistency{Of: what, Problem: f.Problem, Proof: f.Proof, Broken: f.Kind == ipam.FoundBroken})
	}
	return nil
}

// readReports fills in which nodes have which agent: ours says its version.
func readReports(ctx context.Context, store datastore.Store, t *takeover.Facts) error {
	nodes, err := status.Nodes(ctx, store)
	t.Reports = map[string]takeover.Reporting{}
	for _, n := range nodes {
		switch {
		case n.Alive && n.Last.Version != "":
			t.Reports[n.Node] = takeover.Twills
		case n.Alive:
			t.Reports[n.Node] = takeover.Upstreams
		}
	}
	return err
}

// readPasswords looks whether those of BGP's sessions can be had.
func (c *command) readPasswords(ctx context.Context, cfg datastore.Config, d *doctorFlags, t *takeover.Facts) (err error) {
	for _, s := range t.Plan.Sessions {
		if s.Password != nil {
			t.Secrets, err = bgpdaemon.CheckPasswords(ctx, bgpdaemon.Config{Store: cfg, Secrets: d.secrets, SecretsNamespace: d.secretsNamespace, Log: c.Log()}, t.Plan)
			return err
		}
	}
	return nil
}

// readTakenHost fills in what the kernel, processes and files of this host say.
func readTakenHost(ctx context.Context, t *takeover.Facts, d *doctorFlags) error {
	h, err := hostfacts.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	t.Facts.Kernel = hostfacts.Kernel(func() error {
		_, err := agent.Boot(ctx, agent.Config{Node: t.Node})
		return err
	})
	if err := h.Read(t.Facts, d.Settings.InterfacePrefixes); err != nil {
		return err
	}
	h.Listeners(t.Facts)
	hostfacts.Takeover(t, d.felixConfig, bpfFS)
	for _, a := range t.Agents {
		if a.EnvironErr == "" {
			t.Idle = caliconode.Idle(a.Environ)
			break
		}
	}
	t.Drops, t.RulesErr = leftovers.Drops(ctx, t.Leftovers())
	networks, err := cni.Networks(d.confDir)
	if err != nil {
		t.NetworksErr = err.Error()
	}
	for _, n := range networks {
		network := takeover.Network{File: n.File, Name: n.Name, Types: n.Types, IPAM: n.IPAM, Idle: n.Idle}
		if n.Err != nil {
			network.Err = n.Err.Error()
		}
		t.Networks = append(t.Networks, network)
	}
	for _, name := range []string{"calico", "calico-ipam"} {
		there, our := cni.Ours(filepath.Join(d.binDir, name))
		t.Plugins = append(t.Plugins, takeover.Plugin{Name: name, There: there, Our: our})
	}
	return nil
}

// graded is a grade in its colour.
func graded(g takeover.Grade) string {
	switch g {
	case takeover.Same:
		return terminal.Allow.Render(string(g))
	case takeover.Blocks:
		return terminal.Deny.Render(string(g))
	}
	return terminal.Warn.Render(string(g))
}

func printOutlook(w io.Writer, out outlook, wide bool) {
	titles := []string{"GRADE", "CHECK", "FOUND"}
	if wide {
		titles = append(titles, "WHEN", "DO")
	}
	tab := terminal.NewTable(w, titles...)
	count := map[takeover.Grade]int{}
	for _, f := range out.Findings {
		count[f.Grade]++
		if wide {
			tab.Row(graded(f.Grade), f.Check, f.Found, f.When, f.Do)
			continue
		}
		found := f.Found
		if f.When != "" {
			found += " [" + f.When + "]"
		}
		tab.Row(graded(f.Grade), f.Check, found)
		if f.Do != "" {
			tab.Row("", "", "do: "+f.Do)
		}
	}
	_ = tab.Flush()
	fmt.Fprintf(w, "%d block, %d change, %d stay the same\n\nWhat to do next on %s (docs/takeover.md):\n", count[takeover.Blocks], count[takeover.Changes], count[takeover.Same], out.Node)
	for _, s := range out.Next {
		fmt.Fprintln(w, "  "+s)
	}
	if len(out.Back) > 0 {
		fmt.Fprintln(w, "\nThe way back to Calico's agent:")
	}
	for _, s := range out.Back {
		fmt.Fprintln(w, "  "+s)
	}
}
