package ipam

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
)

// ways is how many of the flags that say what to release are given.
func (o releasing) ways() (n int) {
	for _, given := range []bool{len(o.ips) > 0, len(o.reports) > 0, o.blocksOf != ""} {
		if given {
			n++
		}
	}
	return n
}

// givenUp is a block that a node had.
type givenUp struct {
	Block string `json:"block"`
	Node  string `json:"node"`
}

// giveUp has a node give up its blocks, or those within a range.
func (c *command) giveUp(ctx context.Context, o releasing) error {
	var within netip.Prefix
	if o.within != "" {
		var err error
		if within, err = netip.ParsePrefix(o.within); err != nil || within != within.Masked() || within.Addr().Is4In6() {
			return console.Usage("ipam release: --within=%s: want a range such as 10.65.64.0/18 or fd65::/64", o.within)
		}
	}
	if err := c.Conn.With(ctx, unlocked); err != nil {
		return err
	}
	return c.Conn.Long(ctx, func(ctx context.Context, s datastore.Store) error {
		_, end := c.Working("giving up blocks of "+o.blocksOf, 0)
		given, err := ipam.New(s, ipam.Config{}).ReleaseAffinities(ctx, o.blocksOf, within, !o.force)
		end()
		if errors.Is(err, ipam.ErrInUse) {
			err = fmt.Errorf("%w; --force gives up such blocks, too", err)
		}
		out := &console.Stream{To: c.Stdio, As: o.output, Name: ".block"}
		for _, p := range given {
			err = errors.Join(err, out.Row(givenUp{p.String(), o.blocksOf}, fmt.Sprintf("%s given up by %s\n", p, o.blocksOf)))
		}
		if len(given) == 0 && err == nil {
			fmt.Fprintf(c.Stdio.Err, "%s has no such block\n", o.blocksOf)
		}
		return err
	})
}
