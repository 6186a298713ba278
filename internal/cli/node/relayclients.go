package node

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/relay/process"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) relayClientsCmd() *cobra.Command {
	var socket string
	var output console.Output
	cmd := &cobra.Command{
		Use:   "clients",
		Short: "Show who reads by the relay of this machine",
		Long: `Print the clients of the relay on this machine, each a program of a host: its version,
what it reads, how many changes it is behind, how much it was sent (compressed) and since
when it is connected. "leaves" are clients that were sent to another relay, and have not
gone yet. -o wide names all kinds of resources that it reads.

It asks a socket that is root's alone.

Exit code: 0 printed, 1 no relay answers, 2 wrong usage.`,
		Example: `  twill relay clients
  twill relay clients -o json`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), conn.AskFor)
			defer cancel()
			st, err := process.Ask(ctx, socket)
			if err != nil {
				return conn.ExplainRelay(socket, err)
			}
			return c.Answer(output, console.Answer{
				Doc: st, Rows: ".clients", Name: ".node", Kind: "client",
				Table: func(w io.Writer, wide bool) error { return printClients(w, st, wide, time.Now()) },
			})
		},
	}
	output.AddFlag(cmd)
	cmd.Flags().StringVar(&socket, "socket", conn.RelaySocket(), "the relay's socket (TWILL_RELAY_SOCKET)")
	return cmd
}

func printClients(w io.Writer, st relay.Status, wide bool, now time.Time) error {
	t := terminal.NewTable(w, "NODE", "PROGRAM", "VERSION", "ADDRESS", "CONNECTED", "READS", "BEHIND", "SENT", "NOTE")
	for _, k := range st.Clients {
		note, behind := "", uint64(0)
		if k.Leaves {
			note = "leaves"
		}
		for _, r := range k.Reads {
			behind = max(behind, r.Behind)
		}
		t.Row(cmp.Or(k.Node, "-"), cmp.Or(k.Program, "-"), cmp.Or(k.Version, "-"), cmp.Or(k.Remote, "-"), terminal.Ago(now, k.Since), readsOf(k.Reads, wide), fmt.Sprint(behind), console.Bytes(k.SentBytes), note)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	others := "how many relays there are is not known"
	if st.Relays > 0 {
		others = console.Count(st.Relays, "relay")
	}
	if st.Share > 0 {
		others += fmt.Sprintf(", of which this one's share is %d", st.Share)
	}
	_, err := fmt.Fprintf(w, "\n%s of at most %d; %s\n", console.Count(len(st.Clients), "client"), st.Most, others)
	for _, why := range st.NotReady {
		if err == nil {
			_, err = fmt.Fprintln(w, "not ready: "+why)
		}
	}
	return err
}

// readsOf is what a client follows, by the last parts of prefixes.
func readsOf(reads []relay.Read, wide bool) string {
	if len(reads) > 3 && !wide {
		return console.Count(len(reads), "kind")
	}
	var names []string
	for _, r := range reads {
		names = append(names, relay.NameOf(r.Prefix))
	}
	return cmp.Or(strings.Join(names, ","), "-")
}
