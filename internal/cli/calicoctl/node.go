package calicoctl

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/cli/calicoctl/noderun"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/conn"
)

func (c *command) nodeStatus(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Conn.Timeout)
	defer cancel()
	report, err := daemon.Report(ctx, conn.BgpSocket())
	if err != nil {
		if _, down := c.quietly(ctx, "status"); down != nil {
			return errors.New("Calico process is not running.")
		}
	}
	fmt.Fprintln(c.Out, "Calico process is running.")
	if err != nil || report.Off != "" {
		fmt.Fprint(c.Out, "\nNone of the BGP backend processes (BIRD or GoBGP) are running.\n\n")
		return nil
	}
	for _, family := range []string{"4", "6"} {
		wording.Peers(c.Out, report, family, time.Now())
	}
	fmt.Fprintln(c.Out)
	return nil
}

// nodeCheck asks the kernel what twill needs of it.
func (c *command) nodeCheck(ctx context.Context) error {
	if c.twill(ctx, c.Env, []string{"doctor"}) != 0 {
		return errors.New("System doesn't meet one or more minimum systems requirements to run Calico")
	}
	fmt.Fprintln(c.Out, "System meets minimum system requirements to run Calico!")
	return nil
}

// nodeDiags collects what is needed to find a fault, in this directory. Logs are where --log-dir says, or upstream's are.
func (c *command) nodeDiags(ctx context.Context) error {
	return c.own(ctx, "node", "diags", "--log-dir="+cmp.Or(c.args.text("log-dir"), "/var/log/calico"))
}

func (c *command) nodeRun(ctx context.Context) error {
	code, err := noderun.Run(ctx, c.Env, c.args.flags, noderun.Twill(c.twill))
	if err == nil && code != 0 {
		err = exitCode(code)
	}
	return err
}
