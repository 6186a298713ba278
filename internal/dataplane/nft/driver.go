// Package nft reconciles one nftables table (docs/design/stages.md) with the desired state of sets, policies and endpoints. What
// is desired is decided by package desired alone (docs/decisions/028-desired-and-reconcilers.md).
//
// In: [intent.Batch] through [Driver.Merge], and the table as the kernel has it, through [Driver.Resync].
// Out: one transaction for each [Driver.Apply], with only what differs; several where addresses move between sets, or where
// much is new; and an outcome for each intent.
//
// The table is a function of the intents alone, names included: an agent that restarts finds the table as it wants it, and
// sends nothing. Until the source is in sync, only missing parts of the skeleton are made, which drops packets of endpoints
// without known policy; the rest of the table stays as an earlier agent left it, since intents that are known in part must
// neither open nor remove anything.
//
// A set of addresses is up to four kernel sets: hosts (a hash) and prefixes (intervals), for each family. Those for
// prefixes exist only while they have members. A rule that asks for a set with both kinds becomes two rules; its
// negation stays one. A family in which no set ever had a member has no kernel sets. Once it
// had one it keeps them, also over a restart, since adding or removing them changes each rule of the table (a second at
// 1,000 sets), and one address that comes and goes must not cost that.
//
// A policy that allows a packet ends the stage for it (accept), since each stage is a base chain of its own; only Pass
// needs a mark. The host's action for packets that workload policy allowed is therefore a later stage,
// in input at priority 1.
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
	Recheck  bool          // likewise
	// Names receives which rule each kernel rule renders, so that reports of packets can name what decided; nil: not recorded.
	Names *attribution.Table
	// Reader reads the table on a connection of its own while Conn writes. Nil: changes wait during each Resync.
	Reader Reader
}

// Conn is all that the driver needs of the kernel; *nftables.Conn implements it.
type Conn interface {
	Commit(*nftables.Batch) error
	Check(*nftables.Batch) error // what Commit would return; changes nothing
	List(table string) (*nftables.Ruleset, error)
	ProbeOwner() error
	Settle() // waits until every packet that was under way before the call is done
	Remake(table string, flags nftables.TableFlags) error
}

// Reader reads the table while the driver works.
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
	used       [2]bool // families in which some set has, or had, a member; for others no kernel sets are made

	// Kernel objects by name, desired and actual, and those where the two differ.
	table       kernelTable
	chains      map[string]*chain
	ksets       map[string]*kset
	dirtyChains map[string]struct{}
	dirtyKsets  map[string]struct{}

	drift     drift
	commits   int  // transactions that the kernel accepted
	reading   bool // a ReadBack runs
	discarded int  // consecutive readings that could not be used
	resumed   bool // the first reading was searched for interfaces that an earlier agent left to be rechecked

	fresh  map[*kset]struct{} // sets that no chain in force looks into yet
	room   int                // bytes: a larger transaction is split into parts where possible
	trying *plan              // the plan that is being committed
	batch  nftables.Batch     // of the plan that was made last
	moves  desired.Mover

	tables *tables              // nil: policy is chains, or not known yet
	moved  []intent.MemberDelta // of a merge, if policy is tables
}

// kernelTable is the actual state of the table itself.
type kernelTable struct {
	read    bool // the table was read
	exists  bool
	rebuild bool // an object has another shape than desired: only deleting and creating the table helps

	flags     nftables.TableFlags
	owned     bool // our connection owns the table
	probed    bool // the kernel was asked whether it supports tables with an owner
	plainOnly bool // it does not
}

// New returns a driver without intents.
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
	d.state = desired.New(desired.Config{Prefixes: cfg.Prefixes, Cost: costs{d}, Budget: cfg.Budget, Recheck: cfg.Recheck, Members: members{d}})
	d.interfaces()
	return d
}

// Retry makes the next Apply try again what the kernel refused, and a table that could not be replaced.
func (d *Driver) Retry() { d.state.Retry() }

// attempts bounds how often one Apply leaves out intents that the kernel refused and tries again.
const attempts = 8

// Apply makes the kernel match, in one transaction. Large new objects go before it, in transactions of their own, and addresses that
// move between sets change in steps. An intent that the kernel refuses is left out and reported in its outcome, and endpoints that
// need it are closed; it is tried again after Retry, or when it changes. An error means that nothing more could be applied, such as
// a table that cannot be read or is owned by another process; call again later.
func (d *Driver) Apply(ctx context.Context) ([]intent.Outcome, error) {
	if err := d.prepare(ctx); err != nil {
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
			if !d.rest(ctx) {
				break
			}
			continue
		}
		d.trying = p
		err := d.conn.Commit(p.batch)
		d.trying = nil
		if err == nil {
			if d.applied(p); !p.more && d.tables == nil {
				break
			}
			attempt--
			continue // until nothing is left
		}
		if !resynced && otherState(err) {
			resynced = true
			if rerr := d.Resync(ctx); rerr != nil {
				return nil, errors.Join(err, rerr)
			}
			continue
		}
		switch {
		case attempt < attempts && d.leaveOut(p, err):
		case d.smaller(p, err):
			attempt-- // terminates, since the size halves
		case attempt < attempts && d.single(p, err):
		default:
			d.table.read = false // the cached actual state may be wrong: read before the next attempt
			return nil, awaitOwner(fmt.Errorf("table %s: %w", d.cfg.Table, err))
		}
	}
	clear(d.fresh)
	if d.batch.Cap() > keptBatch {
		d.batch = nftables.Batch{}
	}
	d.remake()
	d.confirmRepairs()
	return d.state.Outcomes(), nil
}

// prepare reads the table if what is known of it may be wrong, and takes it over.
func (d *Driver) prepare(ctx context.Context) error {
	if !d.table.read || d.drift.notified {
		// While somebody changes our table continually, changes are applied on top of the last reading: the kernel refuses
		// those for which that is out of date, and the next notification leads to another reading.
		if err := d.Resync(ctx); err != nil && (!d.table.read || !errors.Is(err, nftables.ErrInterrupted)) {
			return err
		}
	}
	return d.take()
}

// otherState reports whether err may mean that the cached actual state is wrong.
func otherState(err error) bool {
	return errors.Is(err, syscall.ENOENT) || errors.Is(err, syscall.EEXIST) || errors.Is(err, syscall.EBUSY) ||
		errors.Is(err, nftables.ErrOutcomeUnknown)
}

// leaveOut finds the intents of the operations that failed, and leaves them out from now on. It returns false if there are
// none that can be left out.
func (d *Driver) leaveOut(p *plan, err error) bool {
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
