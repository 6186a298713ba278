package ipam

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/ipam/report"
)

// ipamChecking are the flags of ipam check.
type ipamChecking struct {
	output        console.Output
	fix           bool
	grace, settle time.Duration
}

func (c *command) ipamCheckCmd() *cobra.Command {
	var o ipamChecking
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Find leaked addresses and data that disagree, and repair them",
		Long: `Compare blocks, handles, affinities, workload endpoints and nodes. For each
inconsistency, print the evidence, and what --fix would do.

An address is leaked if it is allocated and it can be proven that nobody has it:
the Twill plugin assigned it to a container, which has an endpoint as long as it
has the address, and no endpoint has it; its node does not exist; or the node's
tunnel has another address. An address younger than --grace is left alone, since
its endpoint may not be written yet; so is one of unknown age, and one assigned to
a container of another main plugin, or of Calico's, which need not have an
endpoint. "twill ipam release --ip" releases such an address.

With --fix the data are read twice, --settle apart, and only what was wrong both
times, with nothing changed between, is repaired. Each repair is one transaction,
which fails if anything has changed since.

Exit code: 0 no problem was found, or all were repaired, 1 there are problems,
2 usage.`,
		Example: `  twill ipam check
  twill ipam check --fix
  twill ipam check -o json > report.json && twill ipam release --from-report=report.json`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			read := c.looking
			if o.fix {
				read = c.changing
			}
			return read(cmd.Context(), func(ctx context.Context, a *ipam.Allocator, v *ipam.Survey) error { return c.ipamCheck(ctx, a, v, o) })
		},
	}
	f := cmd.Flags()
	o.output.AddFlag(cmd)
	f.BoolVar(&o.fix, "fix", false, "repair what is proven")
	f.DurationVar(&o.grace, "grace", report.Grace, "age below which an address is nobody's leak yet")
	f.DurationVar(&o.settle, "settle", 3*time.Second, "time between the two looks of --fix")
	show.Complete(&c.Conn).Flags(cmd)
	return cmd
}

func (c *command) ipamCheck(ctx context.Context, a *ipam.Allocator, v *ipam.Survey, o ipamChecking) error {
	cluster, err := c.clusterOf(ctx) // before a repair, which is to be reported whatever happens
	if err != nil {
		return err
	}
	found := v.Check(ipam.CheckOptions{Now: time.Now(), Grace: o.grace})
	fixed := map[int]string{}
	if o.fix && len(found) > 0 {
		later, err := c.lookAgain(ctx, a, o.settle)
		if err != nil {
			return err
		}
		v, found = later, ipam.Both(found, later.Check(ipam.CheckOptions{Now: time.Now(), Grace: o.grace}))
		at := 0
		_, end := c.Working("repairing", 0)
		repaired := a.Repair(ctx, found)
		end()
		for _, r := range repaired {
			for found[at].Fix == "" {
				at++
			}
			fixed[at] = "yes"
			if r.Err != nil {
				fixed[at] = r.Err.Error()
			}
			at++
		}
	}
	rep := report.Make(v, found, cluster, conn.Version, time.Now())
	left := false
	for i := range rep.Findings {
		rep.Findings[i].Fixed = fixed[i]
		left = left || fixed[i] != "yes"
	}
	err = c.Answer(o.output, console.Answer{Doc: rep, Rows: ".findings", Name: ".kind", Table: func(w io.Writer, wide bool) error {
		printFindings(w, rep, wide)
		return nil
	}})
	if err != nil {
		return err
	}
	if left {
		return console.Exit{Code: 1, Msg: ""}
	}
	return nil
}

// clusterOf is of which cluster a report is; of none, for an account that may see its addresses alone.
func (c *command) clusterOf(ctx context.Context) (of report.Cluster, err error) {
	err = c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) (err error) {
		of, err = report.ClusterOf(ctx, s)
		return err
	})
	if errors.Is(err, datastore.ErrUnauthorized) {
		err = nil
	}
	return of, err
}

func (c *command) lookAgain(ctx context.Context, a *ipam.Allocator, settle time.Duration) (*ipam.Survey, error) {
	_, end := c.Working(fmt.Sprintf("waiting %s to look again", settle), 0)
	defer end()
	t := time.NewTimer(settle)
	defer t.Stop()
	select {
	case <-t.C:
		return c.look(ctx, a, "reading addresses again")
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func printFindings(w io.Writer, r report.Report, wide bool) {
	n := r.Looked
	fmt.Fprintf(w, "Looked at %s, %s, %d addresses in use, %s, %s, %d endpoint addresses, %s.\n",
		console.Count(n.Pools, "pool"), console.Count(n.Blocks, "block"), n.Addresses, console.Count(n.Handles, "handle"), console.Count(n.Claims, "claim"), n.Endpoints, console.Count(n.Nodes, "node"))
	kept := 0
	for _, f := range r.Findings {
		if f.Fix == "" && f.Kind == ipam.FoundLeak && !wide {
			kept++
			continue
		}
		fmt.Fprintf(w, "\n%s %s\n  because: %s\n", subject(f.Finding), f.Problem, f.Proof)
		switch {
		case f.Fixed == "yes":
			fmt.Fprintf(w, "  fixed: %s\n", f.Fix)
		case f.Fixed != "":
			fmt.Fprintf(w, "  not fixed: %s\n", f.Fixed)
		case f.Fix != "":
			fmt.Fprintf(w, "  --fix would: %s\n", f.Fix)
		default:
			fmt.Fprintf(w, "  left alone: %s\n", f.Kept)
		}
	}
	switch {
	case len(r.Findings) == 0:
		fmt.Fprintln(w, "No problems found.")
	case kept > 0:
		fmt.Fprintf(w, "\n%d more are allocated without an endpoint, and too young or not proven to be leaked; -o wide lists them.\n", kept)
	}
}

// subject is what a finding is about.
func subject(f ipam.Finding) string {
	var parts []string
	if f.Address.IsValid() {
		parts = append(parts, f.Address.String())
	} else if f.Block != "" {
		parts = append(parts, "block "+f.Block)
	}
	if f.Handle != "" {
		parts = append(parts, "handle "+f.Handle)
	}
	if f.Owner != "" {
		parts = append(parts, f.Owner)
	}
	switch f.Kind {
	case ipam.FoundBroken:
		return "value:"
	case ipam.FoundClaim:
		return fmt.Sprintf("%s of %s", parts[0], f.Owner)
	}
	if len(parts) == 1 {
		return parts[0]
	}
	return fmt.Sprintf("%s (%s)", parts[0], strings.Join(parts[1:], ", "))
}

// releasing are the flags of ipam release.
type releasing struct {
	ips, reports     []string
	blocksOf, within string
	force            bool
	output           console.Output
}

func (c *command) ipamReleaseCmd() *cobra.Command {
	var o releasing
	cmd := &cobra.Command{
		Use:   "release --ip=ADDRESS… | --from-report=FILE… | --blocks-of=NODE",
		Short: "Free addresses, by name or from a report of check, or a node's blocks",
		Long: `Free addresses. An address that an endpoint has is not freed without --force:
another could get it while the first still uses it.

With --from-report, free the leaks that "twill ipam check -o json" has proven,
or that a report of calicoctl's holds leaked. Each goes only if it is still the
same allocation, by its handle and sequence number, and no endpoint has it;
calicoctl's also only if nothing else is known to have it, and it is older than
15 minutes.

With --blocks-of, have a node give up its blocks, or with --within those in a
range, so that others can have them. A block with addresses in use stays its,
unless --force says otherwise: then it is nobody's from now on, and goes with
its last address. A node that needs addresses claims a block again.

Exit code: 0 all are free, 1 one is not, 2 usage.`,
		Example: `  twill ipam release --ip=10.65.0.5
  twill ipam release --from-report=report.json
  twill ipam release --blocks-of=n1 --within=10.65.64.0/18`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.ways() != 1 {
				return console.Usage("ipam release: want one of --ip, --from-report and --blocks-of: twill ipam release --ip=10.65.0.5")
			}
			if o.within != "" && o.blocksOf == "" {
				return console.Usage("ipam release: --within is of a node's blocks: twill ipam release --blocks-of=n1 --within=%s", o.within)
			}
			if o.blocksOf != "" {
				return c.giveUp(cmd.Context(), o)
			}
			return c.releaseWanted(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.StringSliceVar(&o.ips, "ip", nil, "addresses to free")
	f.StringSliceVar(&o.reports, "from-report", nil, "reports whose leaks to free")
	o.output.AddFlag(cmd)
	f.BoolVar(&o.force, "force", false, "free addresses that endpoints have, or blocks that have addresses in use, too")
	f.StringVar(&o.blocksOf, "blocks-of", "", "a node, to give up its blocks")
	f.StringVar(&o.within, "within", "", "of these only those in this range, as ADDRESS/LENGTH")
	_ = cmd.RegisterFlagCompletionFunc("blocks-of", show.Complete(&c.Conn).Names(api.KindNode)) // it fails only where there is no such flag
	return cmd
}

// releasedAddress is an address that is free, and whether it was in use before.
type releasedAddress struct {
	Address  string `json:"address"`
	Released bool   `json:"released"`
}

func (c *command) releaseWanted(ctx context.Context, o releasing) error {
	rs, err := o.wanted()
	if err == nil && len(o.reports) > 0 {
		err = c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) error { return sameCluster(ctx, s, rs) })
	}
	if err != nil {
		return err
	}
	return c.changing(ctx, func(ctx context.Context, a *ipam.Allocator, v *ipam.Survey) error { return c.release(ctx, a, v, rs, o) })
}

// freeing is an address to free.
type freeing struct {
	ipam.Release
	unproven bool   // calicoctl's report holds it leaked, which proves less than our check
	cluster  string // the clusterGUID of the report
}

// sameCluster refuses what reports of another cluster name: addresses and handles may be there and here.
func sameCluster(ctx context.Context, s datastore.Store, rs []freeing) error {
	c, err := report.ClusterOf(ctx, s)
	if err != nil || c.Info == nil {
		return err
	}
	for _, r := range rs {
		if r.cluster != "" && r.cluster != c.Info.Spec.ClusterGUID {
			return fmt.Errorf("a report is of the cluster with clusterGUID %s, and this one has %s", r.cluster, c.Info.Spec.ClusterGUID)
		}
	}
	return nil
}

// wanted is what to release.
func (o releasing) wanted() ([]freeing, error) {
	var out []freeing
	for _, text := range o.ips {
		addr, err := parseAddr(text)
		if err != nil {
			return nil, err
		}
		out = append(out, freeing{Release: ipam.Release{Addr: addr}})
	}
	for _, file := range o.reports {
		raw, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r, err := report.Read(raw)
		if err != nil {
			return nil, fmt.Errorf("%s: want what `twill ipam check -o json` prints: %w", file, err)
		}
		for _, l := range r.Leaks() {
			out = append(out, freeing{l, r.Findings == nil, r.ClusterGUID})
		}
	}
	return out, nil
}

func (c *command) release(ctx context.Context, a *ipam.Allocator, v *ipam.Survey, rs []freeing, o releasing) error {
	var wrong []error
	p, end := c.Working("released", len(rs))
	defer end()
	out := &console.Stream{To: c.Stdio, As: o.output, Name: ".address"}
	var now map[netip.Addr][]ipam.Record
	if slices.ContainsFunc(rs, func(r freeing) bool { return r.unproven }) {
		now = report.Now(v)
	}
	for _, r := range rs {
		p.Step()
		if ref, node, has := v.Endpoint(r.Addr); has && !o.force {
			wrong = append(wrong, fmt.Errorf("release %s: in use by endpoint %s/%s on %s; delete the endpoint or pass --force", r.Addr, ref.Namespace, ref.Name, node))
			continue
		}
		if r.unproven && !o.force {
			if why := report.Kept(r.Release, now[r.Addr]); why != "" {
				wrong = append(wrong, fmt.Errorf("release %s: %s; pass --force if it is nobody's", r.Addr, why))
				continue
			}
		}
		freed, err := a.Release(ctx, r.Release)
		switch {
		case err != nil:
		case slices.Contains(freed, r.Addr):
			err = out.Row(releasedAddress{r.Addr.String(), true}, r.Addr.String()+" released\n")
		default:
			err = out.Row(releasedAddress{r.Addr.String(), false}, r.Addr.String()+" is free already\n")
		}
		if err != nil {
			wrong = append(wrong, err)
		}
	}
	if len(rs) == 0 {
		fmt.Fprintln(c.Stdio.Err, "the reports hold no leak that is proven")
	}
	return console.Few(wrong)
}
