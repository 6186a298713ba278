package explain

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/manifests"
	"github.com/twillnet/twill/internal/cli/paths"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/verdict/world"
)

// Denied is the exit code of an answer that is no.
const Denied = 3

func (c *command) whyCmd() *cobra.Command {
	var o whyOptions
	cmd := &cobra.Command{
		Use:   "why SRC DST PROTO/PORT",
		Short: "Say whether a flow may pass, and which rule decides",
		Long: `Say whether SRC may open a flow to DST, the way through the tiers on both ends,
and the rule that decides. The answer comes from the resources themselves: those
in the datastore, or with --files those in a directory, with no store at all;
there Kubernetes' own objects are understood, too (see "twill translate").

Staged policies decide nothing. Where they would decide otherwise, the answer says
so; --staged shows the way as it would be if all of them were enforced.

A host endpoint is asked if it has an address of its Node. Where none has, and the
question does not name the interface (--uplink), each that may be meant is asked, and
one that denies counts.

Where the two ends are on different hosts, the answer also says how packets go
between these: encrypted by WireGuard, by VXLAN or IPIP, straight, or not at all.

What nodes report of endpoints on the way, and this host's agent of policies, is shown
below the answer if it is not in force, such as an endpoint whose interface is refused
or a policy that is over its budget.

SRC, DST     namespace/workload, host/NODE, or an address
PROTO/PORT   tcp/443, udp/53, sctp/5000, icmp, icmp/TYPE/CODE, or a protocol number

Exit code: 0 allowed, 3 denied, 1 the question cannot be answered.`,
		Example: `  twill why demo/client demo/web tcp/80
  twill why demo/api 203.0.113.9 tcp/443 -o json
  twill why --files policies/ demo/client demo/db tcp/5432`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 3 {
				return console.Usage("why: want SRC DST PROTO/PORT: twill why demo/client demo/web tcp/80")
			}
			if o.v4 && o.v6 {
				return console.Usage("why: -4 and -6 exclude each other; without them both families are asked")
			}
			return nil
		},
		RunE:              func(cmd *cobra.Command, args []string) error { return c.why(cmd.Context(), args, o) },
		ValidArgsFunction: show.Complete(&c.Conn).Flow,
	}
	cmd.Flags().StringSliceVar(&o.files, "files", nil, "read resources from files or directories, not from the datastore")
	cmd.Flags().BoolVar(&o.staged, "staged", false, "answer as if staged policies were enforced")
	cmd.Flags().Uint16Var(&o.sport, "sport", 40000, "source port")
	cmd.Flags().StringVar(&o.uplink, "uplink", "", "the interface by which packets come to and leave hosts (default: by what host endpoints and Nodes say)")
	cmd.Flags().BoolVarP(&o.v4, "ipv4", "4", false, "IPv4 only")
	cmd.Flags().BoolVarP(&o.v6, "ipv6", "6", false, "IPv6 only")
	o.output.AddFlag(cmd)
	return cmd
}

type whyOptions struct {
	files  []string
	sport  uint16
	v4, v6 bool
	staged bool
	uplink string
	output console.Output
}

func (c *command) why(ctx context.Context, args []string, o whyOptions) error {
	q, err := parseFlow(args[2])
	if err != nil {
		return err
	}
	q.SrcPort, q.Uplink = o.sport, o.uplink
	us, err := c.resources(ctx, o)
	if err != nil {
		return err
	}
	w := world.New(us)
	if q.Src, err = w.Resolve(args[0]); err != nil {
		return err
	}
	if q.Dst, err = w.Resolve(args[1]); err != nil {
		return err
	}
	qs, err := inFamilies(q, o)
	if err != nil {
		return err
	}
	e := Explanation{question: strings.Join(args, " "), Staged: o.staged}
	staged := w.Staged()
	for _, q := range qs {
		is, would := w.Judge(q), staged.Judge(q)
		if o.staged {
			is, would = would, is
		}
		e.Answers = append(e.Answers, is)
		if way, are := paths.Between(us, q, is.Dst); are {
			e.Ways = append(e.Ways, way)
		}
		if is.Allowed != would.Allowed {
			e.Otherwise = append(e.Otherwise, would)
		}
	}
	e.Problems = involved(w.Problems(), us, e.Answers)
	if len(o.files) == 0 {
		e.Reported = notInForce(ctx, e.Answers, reported(us, e.Answers))
	}
	return c.printWhy(e, o)
}

// resources are those of files, or of the datastore.
func (c *command) resources(ctx context.Context, o whyOptions) (us []api.Update, err error) {
	if len(o.files) == 0 {
		err = c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) error {
			snap, err := s.List(ctx, api.Root)
			us = snap.Items
			return err
		})
		return us, err
	}
	ms, err := manifests.LoadMixed(c.Stdio, o.files, true)
	if err != nil {
		return nil, err
	}
	return manifests.Stored(ms)
}

const (
	protoICMP   = 1
	protoICMPv6 = 58
	echo4       = 8 // echo request, RFC 792
	echo6       = 128
)

// parseFlow reads tcp/443, icmp, icmp/8/0 or 47.
func parseFlow(text string) (q world.Query, err error) {
	bad := console.Usage("%q: want PROTO/PORT, such as tcp/443, udp/53, icmp, icmp/8/0, or a protocol number", text)
	parts := strings.Split(text, "/")
	n, ok := api.Protocol{Name: parts[0]}.Number()
	if !ok {
		return q, bad
	}
	q.Proto = n
	nums := make([]uint16, len(parts)-1)
	for i, p := range parts[1:] {
		v, err := strconv.ParseUint(p, 10, 16)
		if err != nil {
			return q, bad
		}
		nums[i] = uint16(v)
	}
	switch hasPorts := slices.Contains([]uint8{6, 17, 132, 136}, n); {
	case n == protoICMP || n == protoICMPv6:
		q.ICMPType = map[uint8]uint8{protoICMP: echo4, protoICMPv6: echo6}[n]
		if len(nums) > 2 || len(nums) > 0 && nums[0] > 255 || len(nums) > 1 && nums[1] > 255 {
			return q, bad
		}
		if len(nums) > 0 {
			q.ICMPType = uint8(nums[0])
		}
		if len(nums) > 1 {
			q.ICMPCode = uint8(nums[1])
		}
	case hasPorts && len(nums) == 1:
		q.DstPort = nums[0]
	case hasPorts || len(nums) > 0:
		return q, bad
	}
	return q, nil
}

// inFamilies asks q in each family in which both ends have an address and the
// protocol means the same, and that the flags want.
func inFamilies(q world.Query, o whyOptions) ([]world.Query, error) {
	var out []world.Query
	for _, family := range []int{4, 6} {
		if family == 4 && o.v6 || family == 6 && o.v4 {
			continue
		}
		q := q
		q.Family = family
		if (ownHost(q) || has(q.Src, family)) && has(q.Dst, family) && sameMeaning(&q) {
			out = append(out, q)
		}
	}
	if len(out) > 0 {
		return out, nil
	}
	for _, p := range []world.Party{q.Src, q.Dst} {
		if len(p.Addrs) == 0 && !p.Host { // its endpoint is closed, which is an answer
			q.Family = 4
			if o.v6 {
				q.Family = 6
			}
			return []world.Query{q}, nil
		}
	}
	return nil, fmt.Errorf("%s (%s) and %s (%s): no family in which both have an address and this protocol exists", q.Src.Name, show.Addrs(q.Src), q.Dst.Name, show.Addrs(q.Dst))
}

// ownHost: a host reaches its own workloads from whatever address it has there.
func ownHost(q world.Query) bool {
	return q.Src.Host && q.Dst.Endpoint != "" && q.Src.Node == q.Dst.Node
}

func has(p world.Party, family int) bool {
	return slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return a.Is4() == (family == 4) })
}

// sameMeaning makes of an echo request that of the other family. Other types of
// ICMP have numbers of their own in each, so they are asked in their own only.
func sameMeaning(q *world.Query) bool {
	switch {
	case q.Family == 6 && q.Proto == protoICMP && q.ICMPType == echo4 && q.ICMPCode == 0:
		q.Proto, q.ICMPType = protoICMPv6, echo6
	case q.Family == 6 && q.Proto == protoICMP, q.Family == 4 && q.Proto == protoICMPv6:
		return false
	}
	return true
}
