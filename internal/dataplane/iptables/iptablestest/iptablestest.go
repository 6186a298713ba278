// Package iptablestest runs the programs of iptables in the network namespace of a test.
//
// In: a namespace, and a backend of iptables. Out: the tools of a driver there.
package iptablestest

import (
	"context"

	"github.com/twillnet/twill/internal/dataplane/iptables"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// In returns the tools of a driver whose tables and sets are those of a namespace.
func In(ns *netnstest.NS, programs iptables.Host) iptables.Tools { return inside{programs, ns} }

type inside struct {
	iptables.Host
	ns *netnstest.NS
}

func (i inside) Save(ctx context.Context, f intent.Family) (s string, err error) {
	i.ns.Do(func() { s, err = i.Host.Save(ctx, f) })
	return s, err
}

func (i inside) Restore(ctx context.Context, f intent.Family, text string) (err error) {
	i.ns.Do(func() { err = i.Host.Restore(ctx, f, text) })
	return err
}

func (i inside) SaveSets(ctx context.Context) (s string, err error) {
	i.ns.Do(func() { s, err = i.Host.SaveSets(ctx) })
	return s, err
}

func (i inside) RestoreSets(ctx context.Context, text string) (err error) {
	i.ns.Do(func() { err = i.Host.RestoreSets(ctx, text) })
	return err
}

func (i inside) DestroySet(name string) (inUse bool, err error) {
	i.ns.Do(func() { inUse, err = i.Host.DestroySet(name) })
	return inUse, err
}
