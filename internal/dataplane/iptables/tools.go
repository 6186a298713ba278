package iptables

import (
	"context"
	"errors"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/ipset"
	"github.com/twillnet/twill/internal/kernel/nftables"
	"github.com/twillnet/twill/internal/kernel/xtables"
)

// Tools are the programs that a [Driver] runs, all in one network namespace.
type Tools interface {
	// Save returns the text of all tables of a family, as iptables-save prints it.
	Save(context.Context, intent.Family) (string, error)
	// Restore changes the tables of a text, each in one step; chains that it does not name stay.
	Restore(ctx context.Context, f intent.Family, text string) error
	// SaveSets returns the text of all sets, as ipset save prints it.
	SaveSets(context.Context) (string, error)
	// RestoreSets carries out the lines of a text for ipset restore, one by one.
	RestoreSets(ctx context.Context, text string) error
	// DestroySet destroys a set; inUse: some rule looks into it, and it is there as before.
	DestroySet(name string) (inUse bool, err error)
	// Settle returns when each packet that was under way when it was called has passed.
	Settle()
}

// HasSets reports whether the program of sets is installed.
func HasSets() bool { return ipset.Installed() }

// Host are the programs of the calling thread's network namespace, of one backend.
type Host xtables.Backend

var familyNames = map[intent.Family]xtables.Family{intent.IPv4: xtables.IPv4, intent.IPv6: xtables.IPv6}

// Save implements Tools.
func (h Host) Save(ctx context.Context, f intent.Family) (string, error) {
	return xtables.Save(ctx, xtables.Backend(h), familyNames[f])
}

// Restore implements Tools.
func (h Host) Restore(ctx context.Context, f intent.Family, text string) error {
	return xtables.Restore(ctx, xtables.Backend(h), familyNames[f], text)
}

// SaveSets implements Tools. It runs no program while there are no sets.
func (h Host) SaveSets(ctx context.Context) (string, error) {
	if names, err := ipset.Names(); err != nil || len(names) == 0 {
		return "", err
	}
	return ipset.Save(ctx)
}

// RestoreSets implements Tools.
func (h Host) RestoreSets(ctx context.Context, text string) error { return ipset.Restore(ctx, text) }

// DestroySet implements Tools.
func (h Host) DestroySet(name string) (inUse bool, err error) {
	err = ipset.Destroy(name)
	if errors.Is(err, ipset.ErrInUse) {
		return true, nil
	}
	return false, err
}

// Settle implements Tools.
func (h Host) Settle() { nftables.Settle() }
