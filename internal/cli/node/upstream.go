package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/kernel/rtnl"
	"github.com/twillnet/twill/internal/node"
	"github.com/twillnet/twill/internal/nodeaddr"
	"github.com/twillnet/twill/internal/nodekeep"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/relay/discovery"
)

// DataDir is where this host keeps its data under upstream's names, which have no flag for it.
var DataDir = "/var/lib/twill"

// Local is what the environment and files say of this host, without flags.
func Local() (conn.Local, error) {
	l := conn.Local{Dir: DataDir}
	return l, l.Read()
}

// keeping is what the environment says of this node's addresses.
func keeping(e *conn.Env) (l conn.Local, cfg nodekeep.Config, err error) {
	var a addressing
	a.addFlags(pflag.NewFlagSet("", pflag.ContinueOnError)) // whose defaults are the environment's
	if l, err = Local(); err != nil {
		return l, cfg, err
	}
	cfg, err = a.config()
	cfg.Node, cfg.Log = l.Node, e.Log()
	if l.Kubernetes() {
		cfg.NodeRef = "" // a Node is that of Kubernetes
	}
	return l, cfg, err
}

// reads is how a program of this version reads what it follows.
func reads(s config.Relay) discovery.Host {
	return discovery.Host{Relay: s, Who: relay.Who{Version: conn.Version}}
}

// KeepAddresses keeps this node's addresses in the datastore until the context ends. `twill node` does so, too, while it supervises its daemons.
func KeepAddresses(ctx context.Context, e *conn.Env) error {
	l, cfg, err := keeping(e)
	if err != nil {
		return err
	}
	node.Prepare(ctx, l.Followed(&e.Conn), cfg, reads(l.Settings.Relay), nil)
	return nil
}

// Register makes the datastore ready for use, as start says, and writes this node's addresses, once. It ends when they are written, or with why there
// are none, or with what keeps it from that and does not go away by itself; while the datastore does not answer it waits.
func Register(ctx context.Context, e *conn.Env, start func(conn.Local) (node.Startup, error)) error {
	l, cfg, err := keeping(e)
	if err != nil {
		return err
	}
	first, err := start(l)
	if err != nil {
		return err
	}
	if err := errors.Join(conn.KeepName(l.Dir, l.Node), conn.KeepUpstreamsName(l.Node)); err != nil {
		return fmt.Errorf("write down this node's name: %w", err)
	}
	store := l.Followed(&e.Conn)
	fill := func(ctx context.Context, s datastore.Store) error {
		err := unlessFrozen(l, first.Fill)(ctx, s)
		if errors.Is(err, node.ErrFrozen) { // the agent, which runs after this, says so for as long as it is
			cfg.Log.Error("the datastore is not made ready for use", "err", err)
			return nil
		}
		return err
	}
	if err := node.MakeReady(ctx, store, cfg.Log, fill); err != nil || cfg.Idle() {
		return WhoMay(l, err)
	}
	ctx, stop := context.WithCancel(ctx)
	kept, failed := make(chan struct{}), make(chan error, 1)
	cfg.Failed = func(err error) {
		select {
		case failed <- err:
		default: // one is enough
		}
	}
	go func() {
		defer close(kept)
		node.Prepare(ctx, store, cfg, reads(l.Settings.Relay), nil)
	}()
	defer func() {
		stop()
		<-kept
	}()
	for {
		done, err := registered(ctx, store, cfg)
		if done || err != nil {
			return WhoMay(l, err)
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case err := <-failed:
			return WhoMay(l, err)
		case <-time.After(lookAgain):
		}
	}
}

// WhoMay adds to an error for lack of a right which role has it; any other error stays as it is.
func WhoMay(l conn.Local, err error) error {
	switch {
	case !errors.Is(err, datastore.ErrUnauthorized):
		return err
	case l.Kubernetes():
		return fmt.Errorf("%w; bind this account to the ClusterRole twill-node that `twill kube node` prints, or give the one that it has this right", err)
	}
	return fmt.Errorf("%w; docs/etcd.md has the roles of etcd's users, and which one may do this", err)
}

// lookAgain is how long to wait for what another goroutine writes.
const lookAgain = 200 * time.Millisecond

// registered reports whether the Node has the addresses that it is to have. A datastore that does not answer is asked again.
func registered(ctx context.Context, cfg datastore.Config, keep nodekeep.Config) (bool, error) {
	h, err := rtnl.Open()
	if err != nil {
		return false, fmt.Errorf("open netlink (are you root?): %w", err)
	}
	defer h.Close()
	host, err := nodekeep.Look(ctx, h)
	if err != nil {
		return false, err
	}
	s, err := stores.Open(ctx, cfg)
	if err != nil {
		return false, unlessAway(err)
	}
	defer s.Close()
	book, err := readBook(ctx, s)
	if err != nil {
		return false, unlessAway(err)
	}
	has, why := false, ""
	for _, w := range keep.Wants {
		r := reportAddress(w, host, book, keep.Node)
		if r.Write {
			return false, nil
		}
		has = has || r.Node != ""
		if why == "" && w.Order != nodeaddr.Keep {
			why = r.Why
		}
	}
	if !has && why != "" {
		return false, fmt.Errorf("node %s has no address: %s", keep.Node, why)
	}
	return true, nil
}

// unlessAway is an error, but of a datastore that is away.
func unlessAway(err error) error {
	if errors.Is(err, datastore.ErrUnavailable) || errors.Is(err, context.DeadlineExceeded) {
		return nil
	}
	return err
}
