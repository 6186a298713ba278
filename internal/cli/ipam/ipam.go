package ipam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/ipam/report"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) ipamCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ipam",
		Short: "See, check and repair who has which address",
		Long: `Addresses come from IPPools, block by block. A block is mostly one node's (its
affinity); a handle counts the addresses of one user, such as a container. The
data are Calico's: calicoctl ipam reads and writes the same.`,
		RunE: console.SubcommandWanted,
		Args: cobra.ArbitraryArgs,
	}
	cmd.AddCommand(c.ipamShowCmd(), c.ipamCheckCmd(), c.ipamReleaseCmd(), c.ipamSplitCmd(), c.ipamConfigureCmd())
	return cmd
}

// looking gives a command everything that bears on addresses.
func (c *command) looking(ctx context.Context, do func(context.Context, *ipam.Allocator, *ipam.Survey) error) error {
	return c.Conn.Long(ctx, func(ctx context.Context, s datastore.Store) error {
		a := ipam.New(s, ipam.Config{})
		v, err := c.look(ctx, a, "reading addresses")
		if err != nil {
			return err
		}
		return do(ctx, a, v)
	})
}

// changing is looking, for a command that changes addresses: nothing does while the datastore is locked, for whoever moves it has read them.
func (c *command) changing(ctx context.Context, do func(context.Context, *ipam.Allocator, *ipam.Survey) error) error {
	if err := c.Conn.With(ctx, unlocked); err != nil {
		return err
	}
	return c.looking(ctx, do)
}

func unlocked(ctx context.Context, s datastore.Store) error {
	c, err := report.ClusterOf(ctx, s)
	if err != nil {
		return err
	}
	if c.Info != nil && c.Info.Spec.Locked() {
		return errors.New("the datastore is locked, and no address changes: whoever moves it would not have the change. When nobody does any more, `twill datastore unlock`")
	}
	return nil
}

// look reads everything that bears on addresses.
func (c *command) look(ctx context.Context, a *ipam.Allocator, what string) (*ipam.Survey, error) {
	_, end := c.Working(what, 0)
	defer end()
	return a.ReadSurvey(ctx)
}

// showing are the flags of ipam show.
type showing struct {
	ip                              string
	output                          console.Output
	blocks, borrowed, configuration bool
}

func (c *command) ipamShowCmd() *cobra.Command {
	var o showing
	cmd := &cobra.Command{
		Use:   "show",
		Short: "How full pools and blocks are, and who has an address",
		Long: `Show how many addresses of each pool are in use, and how many can be given out:
those that an IPReservation has cannot. With --show-blocks, of each block
too; with --ip, all that is known of one address; with --show-borrowed, which
addresses are in use on another node than their block's; with
--show-configuration, the cluster's settings.

-o wide adds who may have addresses of a pool.

Exit code: 0 shown, 1 the datastore could not be read, 2 usage.`,
		Example: `  twill ipam show
  twill ipam show --show-blocks
  twill ipam show --ip=10.65.0.5
  twill ipam show --show-borrowed -o json`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.configuration {
				if err := c.noteDiffering(cmd.Context()); err != nil {
					return err
				}
			}
			if o.ip == "" {
				return c.looking(cmd.Context(), func(_ context.Context, _ *ipam.Allocator, v *ipam.Survey) error { return c.show(v, o) })
			}
			addr, err := parseAddr(o.ip)
			if err != nil {
				return err
			}
			return c.looking(cmd.Context(), func(ctx context.Context, a *ipam.Allocator, v *ipam.Survey) error {
				return c.showIP(ctx, a, v, addr, o.output)
			})
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.ip, "ip", "", "an address")
	f.BoolVar(&o.blocks, "show-blocks", false, "each block, too")
	f.BoolVar(&o.borrowed, "show-borrowed", false, "addresses that are in use on another node than their block's")
	f.BoolVar(&o.configuration, "show-configuration", false, "the settings of the cluster")
	cmd.MarkFlagsMutuallyExclusive("ip", "show-borrowed", "show-configuration")
	cmd.MarkFlagsMutuallyExclusive("ip", "show-blocks")
	o.output.AddFlag(cmd)
	show.Complete(&c.Conn).Flags(cmd)
	return cmd
}

func parseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil || addr.Zone() != "" || addr.Is4In6() {
		return netip.Addr{}, console.Usage("%q: want an address, such as 10.65.0.5 or fd65::5", text)
	}
	return addr, nil
}

func (c *command) show(v *ipam.Survey, o showing) error {
	switch {
	case o.borrowed:
		return c.showBorrowed(v, o.output)
	case o.configuration:
		return c.showConfiguration(v.Config(), o.output)
	}
	pools := poolsOf(v)
	return c.Answer(o.output, console.Answer{
		Doc: map[string]any{"pools": pools}, Rows: ".pools", Name: ".name", Kind: "ippool",
		Table: func(w io.Writer, wide bool) error { return c.printPools(w, pools, o, wide) },
	})
}

func (c *command) printPools(w io.Writer, pools []*PoolUse, o showing, wide bool) error {
	if len(pools) == 0 {
		fmt.Fprintln(c.Err, "there are no pools; apply an IPPool")
		return nil
	}
	t, third := terminal.NewTable(w), "BLOCKS"
	if o.blocks {
		third = "AFFINITY"
	}
	head := []string{"POOL", "CIDR", third, "ADDRESSES", "IN USE", "COOLING", "RESERVED", "FREE"}
	if wide {
		head = append(head, "MODE", "USES", "NODES", "NAMESPACES")
	}
	t.Row(head...)
	for _, p := range pools {
		p.print(t, o.blocks, wide)
	}
	return t.Flush()
}

// PoolUse is a pool and how full it is.
type PoolUse struct {
	Name   string     `json:"name"`
	CIDR   string     `json:"cidr"`
	Usage  ipam.Usage `json:"usage"`
	Blocks []blockUse `json:"blocks"`
	spec   api.IPPoolSpec
}

type blockUse struct {
	CIDR     string     `json:"cidr"`
	Affinity string     `json:"affinity,omitempty"`
	Usage    ipam.Usage `json:"usage"`
}

// poolsOf are all pools, and under the name "no pool" the blocks that belong to none.
func poolsOf(v *ipam.Survey) []*PoolUse {
	rest := &PoolUse{Name: "no pool"}
	of := v.BlocksOfPools()
	for _, b := range of[""] {
		use := rest.add(v, b)
		rest.Usage.Addresses += use.Addresses
		rest.Usage.InUse += use.InUse
		rest.Usage.Cooling += use.Cooling
		rest.Usage.Reserved += use.Reserved
		rest.Usage.Free += use.Free
	}
	var out []*PoolUse
	for _, p := range v.Pools {
		u := &PoolUse{Name: p.Name, CIDR: p.CIDR.String(), Usage: v.UsedOfPool(p.CIDR, of[p.Name]), Blocks: []blockUse{}, spec: v.Spec(p.Name)}
		for _, b := range of[p.Name] {
			u.add(v, b)
		}
		out = append(out, u)
	}
	if len(rest.Blocks) > 0 {
		out = append(out, rest)
	}
	return out
}

// add notes a block, and returns how full it is.
func (p *PoolUse) add(v *ipam.Survey, b *api.Block) ipam.Usage {
	use, own := v.UsedOf(b), ""
	if o, ok := b.Owner(); ok {
		own = o.String()
	}
	p.Blocks = append(p.Blocks, blockUse{b.CIDR.String(), own, use})
	return use
}

func (p *PoolUse) print(t *terminal.Table, withBlocks, wide bool) {
	blocks := strconv.Itoa(len(p.Blocks))
	if withBlocks {
		blocks = console.Count(len(p.Blocks), "block")
	}
	row := append([]string{p.Name, p.CIDR, blocks}, numbers(p.Usage)...)
	if wide {
		mode := api.AssignAutomatic
		switch {
		case p.spec.Disabled:
			mode = "disabled"
		case p.spec.AssignmentMode != nil && *p.spec.AssignmentMode != "":
			mode = *p.spec.AssignmentMode
		}
		row = append(row, mode, strings.Join(p.spec.AllowedUses, ","), p.spec.NodeSelector, p.spec.NamespaceSelector)
	}
	t.Row(row...)
	if !withBlocks {
		return
	}
	for _, b := range p.Blocks {
		t.Row(append([]string{"  block", b.CIDR, b.Affinity}, numbers(b.Usage)...)...)
	}
}

func numbers(u ipam.Usage) []string {
	return []string{large(u.Addresses), strconv.Itoa(u.InUse), strconv.Itoa(u.Cooling), large(u.Reserved), large(u.Free)}
}

// large is a number as people can take it in: of an IPv6 pool the exact one says nothing.
func large(n float64) string {
	if n < 1e9 {
		return strconv.FormatFloat(n, 'f', 0, 64)
	}
	return strconv.FormatFloat(n, 'g', 3, 64)
}

// borrowedUse is an address that is in use on another node than its block's.
type borrowedUse struct {
	Address string `json:"address"`
	Node    string `json:"node"`
	Block   string `json:"block"`
	Owner   string `json:"blockAffinity,omitempty"`
	Handle  string `json:"handle"`
}

func (c *command) showBorrowed(v *ipam.Survey, output console.Output) error {
	out := []borrowedUse{}
	for _, b := range v.Blocks {
		for _, l := range ipam.Allocations(b) {
			if node, yes := l.Borrowed(); yes {
				u := borrowedUse{Address: l.Addr.String(), Node: node, Block: b.CIDR.String(), Handle: ipam.HandleOf(l)}
				if own, ok := b.Owner(); ok {
					u.Owner = own.String()
				}
				out = append(out, u)
			}
		}
	}
	return c.Answer(output, console.Answer{
		Doc: map[string]any{"borrowed": out}, Rows: ".borrowed", Name: ".address",
		Table: func(w io.Writer, _ bool) error { return c.printBorrowed(w, out) },
	})
}

func (c *command) printBorrowed(w io.Writer, out []borrowedUse) error {
	if len(out) == 0 {
		fmt.Fprintln(c.Err, "no address is borrowed")
		return nil
	}
	t := terminal.NewTable(w, "ADDRESS", "ON NODE", "BLOCK", "AFFINITY", "HANDLE")
	for _, u := range out {
		t.Row(u.Address, u.Node, u.Block, u.Owner, u.Handle)
	}
	return t.Flush()
}

func (c *command) showIP(ctx context.Context, a *ipam.Allocator, v *ipam.Survey, addr netip.Addr, output console.Output) error {
	l, err := a.QueryIP(ctx, addr)
	if err != nil {
		return err
	}
	return c.Answer(output, console.Answer{Doc: l, Name: ".address", Table: func(w io.Writer, _ bool) error { return printAddress(w, v, addr, l) }})
}

func printAddress(w io.Writer, v *ipam.Survey, addr netip.Addr, l ipam.Lease) error {
	switch {
	case l.Assigned:
		fmt.Fprintf(w, "%s is in use\n", addr)
	case l.ReleasedAt != "":
		fmt.Fprintf(w, "%s was released and cools down since %s\n", addr, l.ReleasedAt)
	case l.Pool == "":
		fmt.Fprintf(w, "%s is in no pool\n", addr)
	case l.Reserved:
		fmt.Fprintf(w, "%s is free, and reserved: it is given out only by name\n", addr)
	default:
		fmt.Fprintf(w, "%s is free\n", addr)
	}
	t := terminal.NewTable(w)
	line := func(what, value string) {
		if value != "" {
			t.Row("  "+what, value)
		}
	}
	line("pool", l.Pool)
	line("block", strings.TrimSuffix(l.Block+" of "+l.Affinity, " of "))
	line("handle", l.Handle)
	if l.Assigned {
		line("sequence", strconv.FormatUint(l.Sequence, 10))
	}
	for _, k := range slices.Sorted(maps.Keys(l.Owner)) {
		line(k, l.Owner[k])
	}
	if ref, node, ok := v.Endpoint(addr); ok {
		line("endpoint", resources.Short(ref)+" on "+node)
	} else if l.Assigned {
		line("endpoint", "none has it; twill ipam check says whether that is a leak")
	}
	return t.Flush()
}

// part is a pool that another was split into.
type part struct {
	Name string `json:"name"`
	CIDR string `json:"cidr"`
}

func (c *command) ipamSplitCmd() *cobra.Command {
	var name, cidr string
	var output console.Output
	cmd := &cobra.Command{
		Use:   "split NUMBER --name POOL | --cidr CIDR",
		Short: "Split a pool into several",
		Long: `Replace a pool by NUMBER pools of equal size, a power of two, that have all its
settings. Blocks and addresses in use stay as they are. It is one transaction:
at no time is an address in no pool, so the datastore need not be locked.

Exit code: 0 split, 1 it could not be done, 2 usage.`,
		Example: "  twill ipam split 4 --name default-ipv4-ippool\n  twill ipam split 2 --cidr 10.65.0.0/16",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 1 || (name == "") == (cidr == "") {
				return console.Usage("ipam split: want a number and one of --name and --cidr: twill ipam split 4 --name mypool")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			n, err := strconv.Atoi(args[0])
			if err != nil {
				return console.Usage("ipam split: %q: want a number of pools, such as 4", args[0])
			}
			return c.Conn.Long(cmd.Context(), func(ctx context.Context, s datastore.Store) error {
				_, end := c.Working("splitting "+name+cidr, 0)
				parts, err := ipam.New(s, ipam.Config{}).Split(ctx, ipam.SplitArgs{Pool: name + cidr, Into: n, Part: partOfPool})
				end()
				var made []part
				for _, p := range parts {
					made = append(made, part{p.Name, p.CIDR.String()})
				}
				return errors.Join(err, c.Answer(output, console.Answer{Doc: made, Name: ".name", Kind: "ippool", Table: func(w io.Writer, _ bool) error {
					for _, p := range made {
						fmt.Fprintf(w, "ippool/%s %s created\n", p.Name, p.CIDR)
					}
					return nil
				}}))
			})
		},
	}
	cmd.Flags().StringVar(&name, "name", "", "name of the pool")
	_ = cmd.RegisterFlagCompletionFunc("name", show.Complete(&c.Conn).Names(api.KindIPPool)) // it fails only where there is no such flag
	output.AddFlag(cmd)
	cmd.Flags().StringVar(&cidr, "cidr", "", "CIDR of the pool")
	return cmd
}

// partOfPool is a stored pool with another name and CIDR.
func partOfPool(stored []byte, name string, cidr netip.Prefix) ([]byte, error) {
	doc, err := resources.Tree(stored)
	if err != nil {
		return nil, err
	}
	top, _ := doc.(map[string]any)
	meta, ok1 := top["metadata"].(map[string]any)
	spec, ok2 := top["spec"].(map[string]any)
	if !ok1 || !ok2 {
		return nil, errors.New("it has no metadata or spec; delete it and create it again")
	}
	meta["name"], meta["uid"], spec["cidr"] = name, uuid.NewString(), cidr.String()
	return resources.InOrderOf(stored, doc), nil
}
