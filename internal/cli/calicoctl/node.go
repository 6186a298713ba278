package calicoctl

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/bgp/speaker"
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
	c.printPeers(report, "4", time.Now())
	c.printPeers(report, "6", time.Now())
	fmt.Fprintln(c.Out)
	return nil
}

// printPeers prints the sessions of one family.
func (c *command) printPeers(r speaker.Report, family string, now time.Time) {
	fmt.Fprintf(c.Out, "\nIPv%s BGP status\n", family)
	var rows [][]string
	for _, s := range r.Sessions {
		if s.Peer.Is4() == (family == "4") {
			state := "start"
			if s.State == speaker.Established {
				state = "up"
			}
			info := s.State
			if s.Why != "" {
				info += " " + s.Why
			}
			rows = append(rows, []string{s.Peer.String(), typeOf(s), state, since(s.Since, now), info})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(c.Out, "No IPv%s peers found.\n", family)
		return
	}
	titles := []string{"PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"}
	wording.Box(c.Out, titles, rows, len(titles))
}

// typeOf is calicoctl's word for why there is a session.
func typeOf(s speaker.Session) string {
	switch {
	case s.From == "mesh":
		return "node-to-node mesh"
	case s.Global:
		return "global"
	}
	return "node specific"
}

// since is the time of the day, or before today the day, as BIRD writes it.
func since(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateOnly)
}

// nodeCheck asks the kernel what twill needs of it.
func (c *command) nodeCheck(ctx context.Context) error {
	if c.twill(ctx, c.Env, []string{"doctor"}) != 0 {
		return errors.New("System doesn't meet one or more minimum systems requirements to run Calico")
	}
	fmt.Fprintln(c.Out, "System meets minimum system requirements to run Calico!")
	return nil
}

func (c *command) nodeDiags(context.Context) error {
	return errors.New("node diags: Twill collects no archive; twill doctor, twill status and twill verify say what is wrong on this host, and twill why says why a packet passes or not")
}

func (c *command) nodeRun(context.Context) error {
	return errors.New("node run: this would start a container of Calico; twill node install makes this host a node with systemd, and twill node runs one in the foreground or in a container. Both read the environment of calico/node")
}
