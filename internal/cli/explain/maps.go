package explain

import (
	"context"
	"io"
	"net/netip"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/explain/ways"
	"github.com/twillnet/twill/internal/datastore"
)

// mapsOptions are the flags of verify that explain a packet's way.
type mapsOptions struct{ addr, flow string }

func (o *mapsOptions) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.addr, "explain", "", "say how packets from and to this address go through the kernel's table, in place of comparing")
	cmd.Flags().StringVar(&o.flow, "flow", "", "with --explain: of these packets only, PROTO/PORT such as tcp/80")
	none := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	protocols := func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
		return []string{"tcp/", "udp/", "sctp/", "icmp"}, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	_ = cmd.RegisterFlagCompletionFunc("explain", none)
	_ = cmd.RegisterFlagCompletionFunc("flow", protocols)
}

// question reads the flags; nil is any flow.
func (o mapsOptions) question() (addr netip.Addr, flow *agent.Flow, err error) {
	if addr, err = netip.ParseAddr(o.addr); err != nil || addr.Zone() != "" {
		return addr, nil, console.Usage("--explain %q: want an address, such as 10.65.2.7", o.addr)
	}
	if o.flow != "" {
		q, err := parseFlow(o.flow)
		if err != nil {
			return addr, nil, err
		}
		flow = &agent.Flow{Proto: q.Proto, Port: q.DstPort}
	}
	return addr.Unmap(), flow, nil
}

// explainMaps says how packets go through the kernel's table.
func (c *command) explainMaps(ctx context.Context, cfg agent.Config, o mapsOptions, output console.Output) error {
	addr, flow, err := o.question()
	if err != nil {
		return err
	}
	var found []agent.Way
	err = c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) (err error) {
		found, err = agent.Explain(ctx, cfg, s, addr, flow)
		return err
	})
	if err != nil {
		return err
	}
	return c.Answer(output, console.Answer{Doc: found, Name: ".code", Table: func(w io.Writer, wide bool) error { return ways.Print(w, addr, found, wide) }})
}
