// Package node is the commands that run and install what a host needs: node with its
// subcommands, agent, relay, cni, docker-plugin.
//
// In: flags, the environment, and the file of settings. Out: the configuration of a
// daemon that lives elsewhere (internal/node, internal/agent).
package node

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.nodeCmd(), c.agentCmd(), c.relayCmd(), c.endpointPluginCmd(), c.cniCmd(), c.dockerCmd(), c.openstackCmd(), c.dhcpCmd(), c.wireguardCmd(), c.dataplaneCmd(), c.policySyncCmd()}
}
