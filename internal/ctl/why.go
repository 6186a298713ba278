package ctl

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"charm.land/lipgloss/v2"
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/verdict/world"
)

// denied is the exit code of an answer that is no.
const denied = 3

func (c *command) whyCmd() *cobra.Command {
	var o whyOptions
	cmd := &cobra.Command{
		Use:   "why SRC DST PROTO/PORT",
		Short: "Say whether a flow may pass, and which rule decides",
		Long: `Say whether SRC may open a flow to DST, the way through the tiers on both ends,
and the rule that decides. The answer comes from the resources themselves: those
in the datastore, or with --files those in a directory, with no store at all.

SRC, DST     namespace/workload, host/NODE, or an address
PROTO/PORT   tcp/443, udp/53, sctp/5000, icmp, icmp/TYPE/CODE, or a protocol number

Exit code: 0 allowed, 3 denied, 1 the question cannot be answered.`,
		Example: `  twill why demo/client demo/web tcp/80
  twill why demo/api 203.0.113.9 tcp/443 -o json
  twill why --files policies/ demo/client demo/db tcp/5432`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 3 {
				return usage("why: want SRC DST PROTO/PORT: twill why demo/client demo/web tcp/80")
			}
			if o.v4 && o.v6 {
				return usage("why: -4 and -6 exclude each other; without them both families are asked")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return c.why(cmd.Context(), args, o) },
	}
	cmd.Flags().StringSliceVar(&o.files, "files", nil, "read resources from files or directories, not from the datastore")
	cmd.Flags().Uint16Var(&o.sport, "sport", 40000, "source port")
	cmd.Flags().BoolVarP(&o.v4, "ipv4", "4", false, "IPv4 only")
	cmd.Flags().BoolVarP(&o.v6, "ipv6", "6", false, "IPv6 only")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json; text without")
	return cmd
}

type whyOptions struct {
	files  []string
	sport  uint16
	v4, v6 bool
	output string
}

func (c *command) why(ctx context.Context, args []string, o whyOptions) error {
	q, err := parseFlow(args[2])
	if err != nil {
		return err
	}
	q.SrcPort = o.sport
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
	var answers []world.Answer
	for _, f := range families(q, o) {
		q := q
		q.Family = f
		if f == 6 && q.Proto == protoICMP {
			q.Proto = protoICMPv6
			if q.ICMPType == echo4 {
				q.ICMPType = echo6
			}
		}
		answers = append(answers, w.Judge(q))
	}
	if len(answers) == 0 {
		return fmt.Errorf("%s and %s have no address of one family", args[0], args[1])
	}
	return c.printAnswers(answers, args, o)
}

// resources are those of files, or of the datastore.
func (c *command) resources(ctx context.Context, o whyOptions) (us []api.Update, err error) {
	if len(o.files) == 0 {
		err = c.conn.with(ctx, func(ctx context.Context, s datastore.Store) error {
			snap, err := s.List(ctx, api.Root)
			us = snap.Items
			return err
		})
		return us, err
	}
	ms, err := c.load(o.files, true)
	if err != nil {
		return nil, err
	}
	for _, m := range ms {
		key, err := api.Key(m.Resource)
		if err != nil {
			return nil, err
		}
		value, err := api.EncodeStored(m.Resource)
		if err != nil {
			return nil, err
		}
		us = append(us, api.Update{Key: key, Value: value})
	}
	return us, nil
}

const (
	protoICMP   = 1
	protoICMPv6 = 58
	echo4       = 8 // echo request, RFC 792
	echo6       = 128
)

// parseFlow reads tcp/443, icmp, icmp/8/0 or 47.
func parseFlow(text string) (q world.Query, err error) {
	bad := usage("%q: want PROTO/PORT, such as tcp/443, udp/53, icmp, icmp/8/0, or a protocol number", text)
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

// families are those in which both ends have an address, and that the flags want.
func families(q world.Query, o whyOptions) []int {
	has := func(p world.Party, is4 bool) bool {
		return slices.ContainsFunc(p.Addrs, func(a netip.Addr) bool { return a.Is4() == is4 })
	}
	var out []int
	if !o.v6 && q.Proto != protoICMPv6 && has(q.Src, true) && has(q.Dst, true) {
		out = append(out, 4)
	}
	if !o.v4 && has(q.Src, false) && has(q.Dst, false) {
		out = append(out, 6)
	}
	return out
}

var (
	styleAllow = lipgloss.NewStyle().Foreground(lipgloss.Color("2")).Bold(true)
	styleDeny  = lipgloss.NewStyle().Foreground(lipgloss.Color("1")).Bold(true)
	styleFaint = lipgloss.NewStyle().Faint(true)
)

func (c *command) printAnswers(answers []world.Answer, args []string, o whyOptions) error {
	no := slices.ContainsFunc(answers, func(a world.Answer) bool { return !a.Allowed })
	if o.output == "json" {
		b, err := json.MarshalIndent(answers, "", "  ")
		if err != nil {
			return err
		}
		fmt.Fprintln(c.stdio.Out, string(b))
	} else {
		shown := map[string]bool{}
		for _, a := range answers {
			text := explain(a)
			if shown[text] { // both families alike: once is enough
				continue
			}
			shown[text] = true
			lipgloss.Fprintf(c.stdio.Out, "%s → %s %s  %s\n%s", args[0], args[1], args[2], styleFaint.Render(a.Src.String()+" → "+a.Dst.String()), text)
		}
		if len(shown) == 1 && len(answers) == 2 {
			lipgloss.Fprintln(c.stdio.Out, styleFaint.Render("The same for IPv6."))
		}
	}
	if no {
		return exit{code: denied}
	}
	return nil
}

// explain is the way through the tiers on both ends, and what decided.
func explain(a world.Answer) string {
	var b strings.Builder
	for _, h := range a.Hops {
		node := ""
		if h.Node != "" {
			node = " on " + h.Node
		}
		fmt.Fprintf(&b, "  %s of %s%s\n", strings.ToLower(h.Direction), h.Name, styleFaint.Render(node))
		for _, t := range h.Tiers {
			if t.Outcome == world.OutcomeSkipped {
				continue
			}
			fmt.Fprintf(&b, "    tier %s: %s\n", t.Name, t.Outcome)
			explainPolicies(&b, t.Policies)
		}
		if len(h.Profiles) > 0 {
			fmt.Fprintf(&b, "    profiles\n")
			explainPolicies(&b, h.Profiles)
		}
	}
	b.WriteString(decision(a) + "\n")
	return b.String()
}

func explainPolicies(b *strings.Builder, ps []world.Policy) {
	for _, p := range ps {
		name := p.Name
		if p.Namespace != "" {
			name = p.Namespace + "/" + name
		}
		what := "no rule matches"
		if p.Rule >= 0 {
			what = fmt.Sprintf("rule %d: %s", p.Rule, p.Text)
		}
		if p.Note != "" {
			what = p.Note
		}
		fmt.Fprintf(b, "      %s %s: %s\n", p.Kind, name, what)
	}
}

func decision(a world.Answer) string {
	d := a.Decided
	var why []string
	if d.Policy != "" {
		why = append(why, d.Policy)
	}
	if d.RuleIndex >= 0 {
		why = append(why, fmt.Sprintf("%s rule %d", strings.ToLower(d.Direction), d.RuleIndex))
	} else {
		why = append(why, d.Reason)
	}
	if d.Tier != "" {
		why = append(why, "tier "+d.Tier)
	}
	if d.Detail != "" {
		why = append(why, d.Detail)
	}
	verdict := styleDeny.Render("DENIED")
	if a.Allowed {
		verdict = styleAllow.Render("ALLOWED")
	}
	return verdict + " by " + strings.Join(why, ", ")
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
