package libnetwork

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// labelPrefix begins the labels of a container that its endpoint gets, as upstream has it.
const labelPrefix = "org.projectcalico.label."

// How long to wait before Docker's API is asked again, at first and at most.
const (
	retryFirst = 200 * time.Millisecond
	retryMost  = 10 * time.Second
)

// follow keeps up with Docker until the context ends: names of networks, labels of containers, and what is left of endpoints that Docker has
// no more.
func (p *plugin) follow(ctx context.Context) {
	for wait := retryFirst; ; {
		began, err := time.Now(), p.followOnce(ctx)
		if time.Since(began) > retryMost {
			wait = retryFirst
		}
		if ctx.Err() != nil {
			return
		}
		if wait == retryFirst {
			p.cfg.Log.Warn("cannot follow Docker; trying again", "err", err, "retry_in_at_most", retryMost)
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		wait = min(2*wait, retryMost)
	}
}

// errGone: dockerd ended.
var errGone = errors.New("Docker's API went away")

// followOnce follows Docker until its API does not answer. Events come from before all is read, so that none is missed.
func (p *plugin) followOnce(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events, err := p.docker.events(ctx)
	if err != nil {
		return err
	}
	again := time.NewTimer(0)
	defer again.Stop()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				return errGone
			}
			p.onEvent(ctx, e)
		case <-again.C:
			if err := p.survey(ctx); err != nil {
				return err
			}
			again.Reset(p.cfg.CollectAfter)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *plugin) onEvent(ctx context.Context, e event) {
	switch is := e.Actor.Attributes; {
	case is.Type != networkDriver:
	case e.Action == "create":
		p.note(e.Actor.ID, is.Name)
	case e.Action == "connect":
		go p.label(ctx, attached{e.Actor.ID, is.Container}) // Docker answers when the container has started
	}
}

// note keeps the name of a network.
func (p *plugin) note(id, name string) {
	if !validID.MatchString(id) {
		return
	}
	if err := p.networks.keep(id, name); err != nil {
		p.cfg.Log.Error("the name of a network cannot be kept; containers of it do not start until Docker's API answers", "network", name, "err", err)
	}
}

// survey compares all that Docker has with what this host has for it.
func (p *plugin) survey(ctx context.Context) error {
	asked := time.Now()
	all, err := p.docker.networks(ctx)
	if err != nil {
		return err
	}
	valid, running := wire.Valid{Docker: true}, []attached(nil)
	for _, n := range all {
		p.note(n.ID, n.Name)
		for container, has := range n.Containers {
			of, err := ref(n.ID, has.EndpointID)
			if err != nil {
				continue // none of ours
			}
			valid.Refs = append(valid.Refs, of)
			if validID.MatchString(container) {
				running = append(running, attached{n.ID, container})
			}
		}
		for _, c := range n.IPAM.Config {
			for _, text := range c.AuxiliaryAddresses {
				if addr, err := netip.ParseAddr(text); err == nil {
					valid.Addrs = append(valid.Addrs, addr)
				}
			}
		}
	}
	go p.labelAll(ctx, running)
	valid.Age = p.cfg.CollectAfter + time.Since(asked) // what was made since Docker was asked is not in its answer
	if err := errors.Join(wire.Ask(ctx, p.cfg.Agent, wire.PathGC, valid, nil), p.sweep(valid.Refs)); err != nil && ctx.Err() == nil {
		p.cfg.Log.Error("what is left of Docker's endpoints cannot be collected; trying again", "err", err, "retry_in", p.cfg.CollectAfter)
	}
	return nil
}

// sweep deletes links of endpoints that Docker has no more, once they have been so for long enough.
func (p *plugin) sweep(valid []wire.Ref) error {
	return onHost(func(host *rtnl.Handle) error {
		links, err := host.Links()
		if err != nil {
			return err
		}
		stale := map[string]time.Time{}
		for _, l := range links {
			of, ours := wire.ParseAlias(l.Alias)
			of.Docker = true
			if !ours || len(of.Network) != fullID || !validID.MatchString(of.Network) || slices.Contains(valid, of) {
				continue
			}
			since, known := p.stale[l.Name]
			if !known {
				since = time.Now()
			}
			if known && time.Since(since) >= p.cfg.CollectAfter {
				p.cfg.Log.Info("deleted a link of an endpoint that Docker does not have any more", "link", l.Name)
				err = errors.Join(err, host.DeleteLink(l.Index))
				continue
			}
			stale[l.Name] = since
		}
		p.stale = stale
		return err
	})
}

// labelAll gives endpoints the labels of their containers, one after the other.
func (p *plugin) labelAll(ctx context.Context, attached []attached) {
	for _, a := range attached {
		p.label(ctx, a)
	}
}

// attached is a container in a network.
type attached struct{ network, container string }

const labelTimeout = 30 * time.Second

// label gives an endpoint the labels of its container; while that fails, again.
func (p *plugin) label(ctx context.Context, a attached) {
	if !p.cfg.Labels {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, labelTimeout)
	defer cancel()
	for {
		err := p.labelOnce(ctx, a)
		if err == nil {
			return
		}
		timer := time.NewTimer(retryFirst)
		select {
		case <-timer.C:
			continue
		case <-ctx.Done():
		}
		timer.Stop()
		p.cfg.Log.Error("an endpoint does not get the labels of its container until it is looked at again", "container", a.container, "err", err, "retry_in", p.cfg.CollectAfter)
		return
	}
}

// labelOnce does so once. A container that is in the network no more needs none.
func (p *plugin) labelOnce(ctx context.Context, a attached) error {
	var is dockerContainer
	if err := p.docker.get(ctx, "/containers/"+a.container+"/json", &is); err != nil {
		return err
	}
	labels := map[string]string{}
	for name, value := range is.Config.Labels {
		if name, ours := strings.CutPrefix(name, labelPrefix); ours {
			labels[name] = value
		}
	}
	for _, has := range is.NetworkSettings.Networks {
		if has.NetworkID != a.network || has.EndpointID == "" {
			continue
		}
		of, err := ref(a.network, has.EndpointID)
		if err != nil {
			return err
		}
		var out wire.Labelled
		if err := wire.Ask(ctx, p.cfg.Agent, wire.PathLabels, wire.Labels{Ref: of, Labels: labels}, &out); err != nil {
			return err
		}
		if len(out.Wrong) > 0 {
			p.cfg.Log.Warn("labels of a container are left out", "container", a.container, "labels", out.Wrong)
		}
	}
	return nil
}
