package calicoctl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/addresses"
	"github.com/twillnet/twill/internal/cli/calicoctl/flags"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/show"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

func (c *command) ipamShow(ctx context.Context) error {
	switch {
	case c.args.text("ip") != "":
		return c.ipamShowIP(ctx, c.args.text("ip"))
	case c.args.has("show-configuration"):
		return c.ipamShowConfiguration(ctx)
	case c.args.has("show-borrowed"):
		return c.ipamShowBorrowed(ctx)
	}
	type use struct {
		Name, CIDR string
		Usage      ipam.Usage
		Blocks     []use
	}
	var all struct{ Pools []use }
	if err := c.ask(ctx, &all, "ipam", "show"); err != nil {
		return err
	}
	var rows [][]string
	row := func(what string, u use) {
		part := func(n float64) string { return fmt.Sprintf("%.5g (%.f%%)", n, 100*n/max(u.Usage.Addresses, 1)) }
		rows = append(rows, []string{what, u.CIDR, fmt.Sprintf("%.5g", u.Usage.Addresses), part(float64(u.Usage.InUse)), part(u.Usage.Free)})
	}
	for _, p := range all.Pools {
		if p.CIDR != "" {
			row("IP Pool", p)
		}
		if c.args.has("show-blocks") {
			for _, b := range p.Blocks {
				row("Block", b)
			}
		}
	}
	const textColumns = 2
	wording.Box(c.Out, []string{"GROUPING", "CIDR", "IPS TOTAL", "IPS IN USE", "IPS FREE"}, rows, textColumns)
	return nil
}

func (c *command) ipamShowIP(ctx context.Context, ip string) error {
	var l struct {
		Assigned         bool
		Handle           string
		Owner, Alternate map[string]string
	}
	if err := c.ask(ctx, &l, "ipam", "show", "--ip="+ip); err != nil {
		return err
	}
	if !l.Assigned {
		fmt.Fprintf(c.Out, "%s is not assigned\n", ip)
		return nil
	}
	fmt.Fprintf(c.Out, "IP %s is in use\nHandle ID: %s\n", ip, orNone(l.Handle))
	if len(l.Owner) == 0 {
		fmt.Fprintln(c.Out, "No Active Owner attributes defined")
	}
	c.attributes("Active Owner Attributes", l.Owner)
	c.attributes("Alternate Owner Attributes", l.Alternate)
	return nil
}

func (c *command) attributes(title string, of map[string]string) {
	if len(of) == 0 {
		return
	}
	fmt.Fprintf(c.Out, "%s:\n", title)
	for _, k := range slices.Sorted(maps.Keys(of)) {
		fmt.Fprintf(c.Out, "  %s: %s\n", k, of[k])
	}
}

func orNone(text string) string {
	if text == "" {
		return "<none>"
	}
	return text
}

func (c *command) ipamShowConfiguration(ctx context.Context) error {
	var cfg api.IPAMConfigurationSpec
	var more struct {
		IPCooldownSeconds int `json:"ipCooldownSeconds"`
	}
	out, err := c.quietly(ctx, "ipam", "show", "--show-configuration", "-o", "json")
	if err == nil {
		err = errors.Join(json.Unmarshal(out, &cfg), json.Unmarshal(out, &more))
	}
	if err != nil {
		return err
	}
	wording.Box(c.Out, []string{"PROPERTY", "VALUE"}, [][]string{
		{"StrictAffinity", strconv.FormatBool(cfg.StrictAffinity)},
		{"AutoAllocateBlocks", strconv.FormatBool(cfg.AutoAllocateBlocks)},
		{"MaxBlocksPerHost", strconv.Itoa(cfg.MaxBlocksPerHost)},
		{"IPCooldownSeconds", strconv.Itoa(more.IPCooldownSeconds)},
	}, 1)
	return nil
}

func (c *command) ipamShowBorrowed(ctx context.Context) error {
	var all struct {
		Borrowed []struct{ Address, Node, Block, BlockAffinity, Handle string }
	}
	if err := c.ask(ctx, &all, "ipam", "show", "--show-borrowed"); err != nil {
		return err
	}
	var rows [][]string
	for _, b := range all.Borrowed {
		rows = append(rows, []string{b.Address, b.Node, b.Block, strings.TrimPrefix(b.BlockAffinity, "host:"), "", b.Handle})
	}
	titles := []string{"IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"}
	wording.Box(c.Out, titles, rows, len(titles))
	return nil
}

func (c *command) ipamCheck(ctx context.Context) error {
	return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		return addresses.Check(ctx, c.Out, s, addresses.Checking{
			All: c.args.has("show-all-ips"), Problems: c.args.has("show-problem-ips"), File: c.args.text("output"), Version: conn.Version, Pod: addresses.PodsOf(&c.Conn),
		})
	})
}

func (c *command) ipamRelease(ctx context.Context) error {
	ip := c.args.text("ip")
	if c.args.has("from-report") {
		files := c.args.flags.Lookup("from-report").Value.(*flags.Value).Each
		return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
			return addresses.Release(ctx, c.Out, s, addresses.Releasing{Files: files, Force: c.args.has("force"), Version: conn.Version})
		})
	}
	if ip == "" {
		return nil
	}
	var l struct{ Assigned bool }
	if err := c.ask(ctx, &l, "ipam", "show", "--ip="+ip); err != nil {
		return err
	}
	if !l.Assigned {
		return fmt.Errorf("IP address %s is not assigned", ip)
	}
	if _, err := c.quietly(ctx, "ipam", "release", "--ip="+ip); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "Successfully released IP address %s\n", ip)
	return nil
}

func (c *command) ipamConfigure(ctx context.Context) error {
	args := []string{"ipam", "configure"}
	var printed []string
	for _, s := range [][2]string{
		{"strictaffinity", "StrictAffinity"},
		{"max-blocks-per-host", "MaxBlocksPerHost"},
		{"kubevirt-ip-persistence", "KubeVirtVMAddressPersistence"},
		{"ip-cooldown-seconds", "IPCooldownSeconds"},
	} {
		if v := c.args.text(s[0]); v != "" {
			args = append(args, "--"+s[0]+"="+v)
			printed = append(printed, fmt.Sprintf("Successfully set %s to: %s\n", s[1], v))
		}
	}
	if _, err := c.quietly(ctx, args...); err != nil {
		return err
	}
	fmt.Fprint(c.Out, strings.Join(printed, ""))
	return nil
}

func (c *command) ipamSplit(ctx context.Context) error {
	number, cidr, name := c.args.word(0), c.args.text("cidr"), c.args.text("name")
	if len(c.args.words) == 2 { //nolint:mnd // an older form: ipam split CIDR NUMBER
		cidr, number = c.args.word(0), c.args.word(1)
	}
	n, err := strconv.Atoi(number)
	switch {
	case err != nil:
		return fmt.Errorf("Error reading number to split IP pools into. %s is not a valid number", number)
	case cidr == "" && name == "":
		return errors.New("No name or CIDR provided. Provide a name or CIDR to denote the IP pool to split")
	}
	locked, err := c.isLocked(ctx)
	if err != nil {
		return err
	}
	if !locked {
		return errors.New("Datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools.")
	}
	pool, err := c.poolOf(ctx, name, cidr)
	if err != nil {
		return err
	}
	if n < 2 || n&(n-1) != 0 {
		return fmt.Errorf("Error splitting the CIDR %s into %d CIDRs: Number to split CIDR into is not a valid power of 2: %d", pool.Spec.CIDR, n, n)
	}
	var made []struct{ Name, CIDR string }
	if err := c.ask(ctx, &made, "ipam", "split", number, "--name="+pool.Metadata.Name); err != nil {
		return fmt.Errorf("Error splitting the CIDR %s into %d CIDRs", pool.Spec.CIDR, n)
	}
	fmt.Fprintf(c.Out, "IP Pool %s was successfully split into %d smaller pools.", pool.Metadata.Name, n)
	for _, p := range made {
		fmt.Fprintf(c.Out, "Created %s with CIDR %s.\n", p.Name, p.CIDR)
	}
	fmt.Fprint(c.Out, "Please refer to the documentation for final steps.")
	return nil
}

// poolOf is the pool of a name or a CIDR.
func (c *command) poolOf(ctx context.Context, name, cidr string) (pool *api.IPPool, err error) {
	err = c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		kind, _ := api.LookupKind(api.KindIPPool)
		all, _, err := show.Find(ctx, s, kind, "")
		for _, f := range all {
			if p, ok := f.Res.(*api.IPPool); ok && (p.Metadata.Name == name || name == "" && p.Spec.CIDR == cidr) {
				pool = p
			}
		}
		return err
	})
	if err == nil && pool == nil {
		err = fmt.Errorf("Unable to find IP pool %s covering the specified CIDR %s", name, cidr)
	}
	return pool, err
}
