// Package bgp is the commands about BGP: `twill bgp` with peers, routes and why, and the
// daemons that speak it or have BIRD speak it: bgp, bfd, confd, bird.
//
// In: flags and the environment. Out: the configuration of a daemon that lives below
// internal/bgp, or what it answers.
package bgp

import (
	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
)

type command struct{ *conn.Env }

// NodeStatus is calicoctl's way to ask for sessions.
func NodeStatus(e *conn.Env) *cobra.Command { return (&command{e}).nodeStatusCmd() }

// Commands are the commands of this package.
func Commands(e *conn.Env) []*cobra.Command {
	c := &command{e}
	return []*cobra.Command{c.bgpCmd(), c.bfdCmd(), c.confdCmd(), c.birdCmd()}
}
