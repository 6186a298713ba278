package nft

import (
	"errors"
	"fmt"
	"time"

	"github.com/twillnet/twill/internal/kernel/nftables"
)

// flags returns the desired flags of the table, as far as the kernel supports them (docs/decisions/015).
func (d *Driver) flags() nftables.TableFlags {
	if !d.host.OwnTable || d.table.plainOnly {
		return 0
	}
	return nftables.TableOwner | nftables.TablePersist
}

// probe asks the kernel once whether it supports tables with an owner, when the settings first want one.
func (d *Driver) probe() error {
	if !d.host.OwnTable || d.table.probed {
		return nil
	}
	err := d.conn.ProbeOwner()
	if err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	d.table.probed, d.table.plainOnly = true, err != nil
	return nil
}

// otherKind reports whether only a new table can have the desired flags.
func (d *Driver) otherKind() bool {
	return d.table.exists && (d.table.flags^d.flags())&nftables.TablePersist != 0
}

// take becomes the owner of a table that has none, and activates one that somebody made dormant, before anything in it is
// changed. If only a new table can have the desired flags, remake replaces it later; until then it keeps its flags.
func (d *Driver) take() error {
	if err := d.probe(); err != nil {
		return err
	}
	flags := d.flags()
	if d.otherKind() {
		flags = d.table.flags &^ nftables.TableDormant
	}
	owned := d.table.owned || flags&nftables.TableOwner == 0 || d.otherKind()
	if !d.table.exists || d.table.flags == flags && owned {
		return nil
	}
	b := nftables.NewBatch()
	b.SetTableFlags(d.cfg.Table, flags)
	if err := d.conn.Commit(b); err != nil {
		d.table.read = false
		return awaitOwner(err)
	}
	d.table.flags, d.table.owned = flags, flags&nftables.TableOwner != 0
	return nil
}

// ownedElsewhere is an error that lasts until another process gives up the table, which it does when it ends.
type ownedElsewhere struct{ error }

func (o ownedElsewhere) Unwrap() error { return o.error }

// RetryWithin returns how soon to try again, since the kernel notifies nobody when an owner goes.
func (ownedElsewhere) RetryWithin() time.Duration { return time.Second }

// awaitOwner wraps an error that lasts only until the table's owner is gone as ownedElsewhere.
func awaitOwner(err error) error {
	if ownedByOther(err) {
		return ownedElsewhere{err}
	}
	return err
}

// remake replaces a table whose flags cannot be changed, once its content is as desired. A failure is not an error of
// policy, which is in force, but of the settings; it is tried again after Retry.
func (d *Driver) remake() {
	if !d.otherKind() {
		if d.state.Unsettled() {
			d.state.Settled(nil)
		}
		return
	}
	if d.state.Unsettled() || !d.state.InSync() {
		return
	}
	flags := d.flags()
	err := d.conn.Remake(d.cfg.Table, flags)
	d.state.Settled(err)
	if err != nil {
		d.table.read = false
		return
	}
	d.table.flags, d.table.owned = flags, flags&nftables.TableOwner != 0
}

// ownedByOther reports whether the kernel refused a change because another socket owns the table.
func ownedByOther(err error) bool {
	var owned *nftables.OwnedError
	return errors.As(err, &owned)
}

// flagDifferences returns where the flags of the table differ from the desired ones. Ownership is not compared: the table has no
// owner while no agent runs.
func (d *Driver) flagDifferences() ([]string, error) {
	if err := d.probe(); err != nil {
		return nil, err
	}
	var out []string
	if d.table.flags&nftables.TableDormant != 0 {
		out = append(out, fmt.Sprintf("table %s is dormant: packets pass it by", d.cfg.Table))
	}
	switch {
	case !d.otherKind():
	case d.flags() == 0:
		out = append(out, fmt.Sprintf("table %s has the flag persist, and nobody wants it", d.cfg.Table))
	default:
		out = append(out, fmt.Sprintf("table %s lacks the flag persist: anybody may flush it", d.cfg.Table))
	}
	return out, nil
}
