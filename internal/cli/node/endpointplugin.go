package node

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi"
	"github.com/twillnet/twill/internal/orchestrator/endpointapi/plugin"
)

func (c *command) endpointPluginCmd() *cobra.Command {
	cfg := plugin.Config{Socket: endpointapi.SocketOf(conn.AgentSocket())}
	var from string
	cmd := &cobra.Command{
		Use:   "endpoint-plugin",
		Short: "Give interfaces of this host their endpoints, from a file",
		Long: `Answer the agent of this host whose an interface is, from a file, and print what
becomes of it: asked, provisioned, failed, gone. It is the reference plugin of the
Endpoint API, by which an orchestrator gives the agent endpoints: docs/endpoint-api.md
has the protocol, and how to write one.

The file is YAML or JSON: a list "endpoints", each with "match" (interface, mac or
alias), workload, endpoint, addresses, and perhaps namespace, mac, gateway4, gateway6,
profiles, labels, nats, allowedSources, groups. It is read again when it changes: what
is new is handed over, what is gone is withdrawn. When the plugin ends, endpoints stay.

With "groups" it also announces groups of endpoints, by the Network API: a list "all",
each with name, and perhaps namespace, selector, ingress and egress, whose rules have
protocol, ports, groups, nets, ipVersion, icmpType, icmpCode. Without, groups that it
has announced before stay.

Exit code: 0 asked to end, 1 the file cannot be read, 2 usage.`,
		Example: "  twill endpoint-plugin --from endpoints.yaml --orchestrator openstack",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			cfg.Read = func() (list plugin.List, err error) {
				text, err := os.ReadFile(from)
				if err == nil {
					err = yaml.UnmarshalStrict(text, &list)
				}
				if err != nil {
					err = fmt.Errorf("%s: %w", from, err)
				}
				return list, err
			}
			cfg.Say = func(format string, args ...any) { fmt.Fprintf(c.Stdio.Out, format+"\n", args...) }
			return plugin.Run(cmd.Context(), cfg)
		},
	}
	f := cmd.Flags()
	f.StringVar(&from, "from", "", "the file with the endpoints")
	f.StringVar(&cfg.Name, "name", "file", "the plugin's name: what it had written under this name is its own")
	f.StringVar(&cfg.Orchestrator, "orchestrator", "file", "the part of endpoints' names that says whose they are")
	f.StringVar(&cfg.Socket, "socket", cfg.Socket, "the agent's socket for plugins")
	_ = cmd.MarkFlagRequired("from")
	return cmd
}
