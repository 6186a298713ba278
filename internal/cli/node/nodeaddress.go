package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/nodeaddr"
	"github.com/twillnet/twill/internal/nodekeep"
	"github.com/twillnet/twill/internal/terminal"
)

// addressing is what a user says of the node's addresses: flags, and where a flag is not given, the environment
// variables that calico/node reads.
type addressing struct {
	ip, ip6, method, method6, as string
}

func (a *addressing) addFlags(f *pflag.FlagSet) {
	f.StringVar(&a.ip, "ip", os.Getenv("IP"), "this node's IPv4 address for other nodes: an address, autodetect, or none to leave the Node as it is; default: find one if the Node has none (IP)")
	f.StringVar(&a.ip6, "ip6", os.Getenv("IP6"), "the same for IPv6; default: none (IP6)")
	f.StringVar(&a.method, "ip-autodetection-method", os.Getenv("IP_AUTODETECTION_METHOD"),
		"how to find it: first-found, can-reach=ADDRESS, interface=PATTERN,…, skip-interface=PATTERN,…, cidr=PREFIX,… or kubernetes-internal-ip (IP_AUTODETECTION_METHOD)")
	f.StringVar(&a.method6, "ip6-autodetection-method", os.Getenv("IP6_AUTODETECTION_METHOD"), "the same for IPv6 (IP6_AUTODETECTION_METHOD)")
}

// config is what the flags say.
func (a *addressing) config() (cfg nodekeep.Config, err error) {
	for _, f := range []struct {
		nodeaddr.Family
		ip, method string
	}{{nodeaddr.V4, a.ip, a.method}, {nodeaddr.V6, a.ip6, a.method6}} {
		w, err := nodeaddr.ParseWant(f.Family, f.ip, f.method)
		if err != nil {
			return cfg, console.Usage("node: %v", err)
		}
		cfg.Wants = append(cfg.Wants, w)
	}
	if a.as != "" {
		var n api.ASNumber
		text := a.as
		if strings.Contains(text, ".") { // 1.10: as text
			text = `"` + text + `"`
		}
		if err := n.UnmarshalJSON([]byte(text)); err != nil {
			return cfg, console.Usage("node: --as (AS) is %q: %v", a.as, err)
		}
		cfg.AS = &n
	}
	cfg.NodeRef = os.Getenv("CALICO_K8S_NODE_REF")
	cfg.Anyway = strings.EqualFold(os.Getenv("DISABLE_NODE_IP_CHECK"), "true")
	cfg.Interval = os.Getenv("AUTODETECT_POLL_INTERVAL")
	return cfg, nil
}

func (c *command) nodeAddressCmd() *cobra.Command {
	var a addressing
	var l conn.Local
	var output console.Output
	cmd := &cobra.Command{
		Use:   "address",
		Short: "Show which address this node has or would be given, and why",
		Long: `Show what the interfaces of this host offer, which address "twill node" would
choose with these flags, why it passes the others over, and what the Node has.
Nothing is written.

Exit code: 0 the Node has, or is about to be given, an address; 1 it has none.`,
		Example: "  twill node address\n  twill node address --ip-autodetection-method 'interface=bond.*,eth0'\n  IP6=autodetect twill node address",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := a.config()
			if err != nil {
				return err
			}
			if err := l.Read(); err != nil {
				return err
			}
			return c.showAddresses(cmd.Context(), l.Node, cfg.Wants, output)
		},
	}
	a.addFlags(cmd.Flags())
	l.AddNodeFlags(cmd)
	output.AddFlag(cmd)
	return cmd
}

// addressReport is what there is to say of one family.
type addressReport struct {
	Family    string `json:"family"`
	Node      string `json:"node,omitempty"`     // what the Node has
	Detected  bool   `json:"detected,omitempty"` // and this node itself found it
	Method    string `json:"method,omitempty"`
	Found     string `json:"found,omitempty"`
	Interface string `json:"interface,omitempty"`
	Why       string `json:"why,omitempty"`   // nothing was found, or it is not written
	Write     bool   `json:"write,omitempty"` // what was found is what the Node is given
}

func (c *command) showAddresses(ctx context.Context, name string, wants []nodeaddr.Want, output console.Output) error {
	h, err := rtnl.Open()
	if err != nil {
		return err
	}
	defer h.Close()
	host, err := nodekeep.Look(ctx, h)
	if err != nil {
		return err
	}
	var reports []addressReport
	err = c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) error {
		book, err := readBook(ctx, s)
		for _, w := range wants {
			reports = append(reports, reportAddress(w, host, book, name))
		}
		return err
	})
	if err != nil {
		return err
	}
	if err := c.Answer(output, console.Answer{Doc: reports, Name: ".family", Table: func(w io.Writer, _ bool) error { return printAddresses(w, name, reports) }}); err != nil {
		return err
	}
	for _, r := range reports {
		if r.Node != "" || r.Write {
			return nil
		}
	}
	return console.Exit{Code: 1, Msg: ""}
}

// readBook reads the addresses of all Nodes.
func readBook(ctx context.Context, s datastore.Store) (*nodeaddr.Registry, error) {
	var book nodeaddr.Registry
	snap, err := s.List(ctx, api.KeyPrefix(api.KindNode, ""))
	for _, u := range snap.Items {
		book.Update(u)
	}
	return &book, err
}

func reportAddress(w nodeaddr.Want, host nodeaddr.Host, book *nodeaddr.Registry, name string) addressReport {
	n := book.Node(name)
	now := nodeaddr.Address(n, w.Family)
	r := addressReport{Family: w.Name, Node: now, Detected: nodeaddr.Detected(n, now)}
	if w.Order == nodeaddr.Keep {
		r.Why = fmt.Sprintf("%s (%s) says that it is left as it is", w.Flag, w.Env)
		return r
	}
	host.Know(n)
	f := nodeaddr.Found{Want: w}
	f.Choice, f.Err = w.Choose(host)
	if w.Order != nodeaddr.Fixed {
		r.Method = w.Method.String()
	}
	if f.Err != nil {
		r.Why = f.Err.Error()
		return r
	}
	r.Found, r.Interface = f.Choice.Addr.String(), f.Choice.Interface
	others := book.Others(name, f.Choice.Addr.Addr())
	switch r.Write = len(nodeaddr.Settle(n, []nodeaddr.Found{f})) > 0; {
	case r.Write && len(others) > 0:
		r.Write, r.Why = false, others[0].String()+"; "+others[0].Fix()
	case !r.Write && now != r.Found:
		r.Why = fmt.Sprintf("somebody gave the Node its address: it stays unless %s=autodetect says otherwise", w.Env)
	}
	return r
}

func printAddresses(w io.Writer, name string, reports []addressReport) error {
	t := terminal.NewTable(w, "FAMILY", "NODE "+strings.ToUpper(name)+" HAS", "FOUND", "ON", "BY", "NOTE")
	for _, r := range reports {
		note := r.Why
		if r.Write {
			note = "what the Node is given"
		}
		has := r.Node
		if r.Detected {
			has += " (found)"
		}
		t.Row(r.Family, cmp.Or(has, "-"), cmp.Or(r.Found, "-"), cmp.Or(r.Interface, "-"), cmp.Or(r.Method, "-"), note)
	}
	return t.Flush()
}
