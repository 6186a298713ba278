// Package nft makes the nftables table (docs/design/stages.md) what package desired decides, for intents of sets, policies and endpoints.
// It decides nothing itself (docs/decisions/028-desired-and-reconcilers.md).
//
// In: [intent.Batch] through [Driver.Merge], and the table as the kernel has it, through [Driver.Resync].
// Out: one transaction for each [Driver.Apply], with only what differs, or several where addresses move between sets or much
// is new; and an outcome for each intent.
//
// The table is a function of the intents alone, names included: an agent that starts anew finds what it wants already
// there, and sends nothing. Until the source is in sync, only the skeleton is made where it is missing, which drops
// what no policy is known for; the rest of the table stays as an earlier agent left it, and is neither widened nor
// swept by what we know only in part.
//
// A set of addresses is up to four kernel sets: hosts (a hash) and prefixes (intervals), for each family. Those for
// prefixes exist only while they have members. A rule that asks for a set with both kinds becomes two rules; its
// negation stays one. A family of which no set at all ever had a member has no kernel sets: nobody is in them. Once it
// had one it keeps them, also over a restart, since to make and unmake them changes each rule of the table (a second at
// 1,000 sets), and one address that comes and goes must not cost that.
//
// That a policy allows a packet ends the stage for it (accept), since each stage is a base chain of its own; only Pass
// needs a mark. What the host does with a workload's packet that policy let through is therefore a stage after that of
// policy, in input at priority 1.
package nft

import (
	"context"
	"errors"
	"fmt"
	"syscall"

	"github.com/twillnet/twill/internal/dataplane/attribution"
	"github.com/twillnet/twill/internal/dataplane/desired"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// Config is what the driver must know of the host.
type Config struct {
	Table    string        // the table that is ours; empty means kernel.TableName
	Prefixes []string      // see desired.Config
	Budget   desired.Price // likewise
	// Names are told what decides at each rule, so that others can say which rule dropped a packet; nil: nobody asks.
	Names *attribution.Table
	// Reader reads the table while Conn writes; another connection, then. Nil: each Resync holds changes up.
	Reader Reader
}

// Conn is all that the driver needs of the kernel; *nftables.Conn has it.
type Conn interface {
	Commit(*nftables.Batch) error
	Check(*nftables.Batch) error // what Commit would say, changing nothing
	List(table string) (*nftables.Ruleset, error)
	ProbeOwner() error
	Settle() // until no packet is on its way that began before
	Remake(table string, flags nftables.TableFlags) error
}

// Reader is what a driver is read back through while it works.
type Reader interface {
	List(table string) (*nftables.Ruleset, error)
}

// Driver owns one table. One goroutine may use it. Make it with New.
type Driver struct {
	cfg  Config
	conn Conn

	state      *desired.State
	host       intent.HostSettings // of state
	configured bool
	sets       map[intent.SetID]*ipset
	used       [2]bool // families of which some set has, or had, a member: before, no set of that family is made

	// Kernel objects by name, as they should be and as they are, and those where the two differ.
	table       kernelTable
	chains      map[string]*chain
	ksets       map[string]*kset
	dirtyChains map[string]struct{}
	dirtyKsets  map[string]struct{}

	drift     drift
	commits   int  // transactions that went in
	reading   bool // ReadBack is at work
	worthless int  // readings in a row that came to nothing

	fresh  map[*kset]struct{} // sets that nothing in force looks into yet
	room   int                // in bytes: transactions that are larger are made in parts, where that can be
	trying *plan              // while it is committed
	moves  desired.Mover
}

// kernelTable is what is known of the table itself.
type kernelTable struct {
	read    bool // the kernel was asked
	exists  bool
	rebuild bool // something has another shape than we want: only making the table anew helps

	flags     nftables.TableFlags
	mine      bool // our connection owns it
	probed    bool // the kernel was asked whether it has tables with an owner
	plainOnly bool // it has not
}

// New returns a driver that knows nothing yet.
func New(conn Conn, cfg Config) *Driver {
	if cfg.Table == "" {
		cfg.Table = kernel.TableName
	}
	if cfg.Names == nil {
		cfg.Names = attribution.New()
	}
	d := &Driver{
		cfg: cfg, conn: conn,
		sets:   map[intent.SetID]*ipset{},
		chains: map[string]*chain{}, ksets: map[string]*kset{},
		dirtyChains: map[string]struct{}{}, dirtyKsets: map[string]struct{}{},
		fresh: map[*kset]struct{}{},
		drift: drift{notes: make(chan func())},
	}
	d.state = desired.New(desired.Config{Prefixes: cfg.Prefixes, Cost: costs{d}, Budget: cfg.Budget})
	d.interfaces()
	return d
}

// Retry gives what the kernel refused another chance, and a table that could not be made anew.
func (d *Driver) Retry() { d.state.Retry() }

// attempts bounds how often one Apply leaves out what the kernel refused and tries again.
const attempts = 8

// Apply makes the kernel match, in one transaction; what is new and much goes before it, in transactions of its own, and addresses move in
// steps. What the
// kernel refuses is left out, endpoints that need it are closed, and the rest goes on; it is tried again after Retry, or when it
// changes.
func (d *Driver) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if !d.table.read || d.drift.heard {
		// If somebody changes our own table all the time, changes go in on top of what was read last: the kernel says
		// where that is wrong, and the next note of a change makes us look again.
		if err := d.Resync(ctx); err != nil && (!d.table.read || !errors.Is(err, nftables.ErrInterrupted)) {
			return nil, err
		}
	}
	if err := d.take(); err != nil {
		return nil, err
	}
	d.room = maxRoom
	d.moves.Reset()
	resynced := false
	for attempt := 0; ; attempt++ {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		d.refresh()
		p := d.plan()
		if p.empty() {
			break
		}
		d.trying = p
		err := d.conn.Commit(p.batch)
		d.trying = nil
		if err == nil {
			d.applied(p)
			if p.more {
				attempt--
				continue
			}
			break
		}
		if !resynced && otherState(err) {
			resynced = true
			if rerr := d.Resync(ctx); rerr != nil {
				return nil, errors.Join(err, rerr)
			}
			continue
		}
		switch {
		case attempt < attempts && d.blame(p, err):
		case d.smaller(p, err):
			attempt-- // that ends, since the size halves
		case attempt < attempts && d.single(p, err):
		default:
			d.table.read = false // what we believe may be wrong: look before the next try
			return nil, awaitOwner(fmt.Errorf("table %s: %w", d.cfg.Table, err))
		}
	}
	clear(d.fresh)
	d.remake()
	d.mend()
	return d.state.Outcomes(), nil
}

// otherState reports whether err may come from a kernel that is not as we believe.
func otherState(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.EBUSY) ||
		errors.Is(err, nftables.ErrOutcomeUnknown)
}

// blame finds the intents behind the operations that failed, and leaves them out from now on. It is false if that
// cannot help.
func (d *Driver) blame(p *plan, err error) bool {
	var be *nftables.BatchError
	if ownedByOther(err) || !errors.As(err, &be) {
		return false
	}
	found := false
	for _, op := range be.Ops {
		found = d.state.Refuse(p.owner(op.Index), op) || found
	}
	return found
}
