package node

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/kernel/wg"
)

func (c *command) wireguardCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "wireguard DEVICE SOCKET",
		Short: "Be the WireGuard device of a host whose kernel has none: the agent starts it",
		Long: `Make a device and encrypt in this process what is routed to it, by wireguard-go.
"twill agent" starts it where FelixConfigurations want WireGuard, the kernel has
none, and wireguardUserspaceEnabled is not false. It needs nobody: the agent, which
may be killed and started again, tells it by SOCKET what to do. Its private key is
in its memory alone, and another with each process.

It ends when the device is deleted, or the socket. docs/wireguard.md has more.

Exit code: 0 the device or the socket was deleted, 1 the device was not made.`,
		Example: "  twill wireguard wireguard.cali /run/twill/wireguard/wireguard.cali.sock",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			conn.IgnoreHangup()
			signal.Ignore(syscall.SIGPIPE, os.Interrupt)
			return wg.Serve(cmd.Context(), args[0], args[1], wg.Started())
		},
	}
}
