package chaostest_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
)

// kernelFaults meddle with what the daemons programmed, or with what lies below it.
func kernelFaults() []fault {
	return []fault{
		{kind: "table-deleted", loses: true, do: meddle("nft delete table inet twill")},
		{kind: "ruleset-flushed", loses: true, do: meddle("nft flush ruleset")},
		{kind: "table-flushed", loses: true, do: meddle("nft flush table inet twill")},
		{kind: "chain-flushed", loses: true, do: meddle("nft flush chain inet twill forward-to-workload")},
		{kind: "rule-added", loses: true, do: meddle("nft insert rule inet twill wl-guard counter drop")},
		{kind: "element-removed", loses: true, do: meddle("nft delete element inet twill wl-links {LINK}")},
		{kind: "route-deleted", loses: true, do: alter("ip route del ADDR4")},
		{kind: "route6-deleted", loses: true, do: alter("ip -6 route del ADDR6")},
		{kind: "route-replaced", loses: true, do: alter("ip route replace ADDR4 dev eth0 proto 80 scope link")},
		{kind: "route-added", do: alter("ip route add 198.51.100.7/32 dev LINK proto 80")},
		{kind: "bgp-routes-flushed", loses: true, do: alter("ip route flush proto bgp")},
		{kind: "forwarding-off", loses: true, do: alter("sysctl -w net.ipv4.ip_forward=0")},
		{kind: "forwarding6-off", loses: true, do: alter("sysctl -w net.ipv6.conf.all.forwarding=0")},
		{kind: "rp-filter-off", do: alter("sysctl -w net.ipv4.conf.LINK.rp_filter=0")},
		{kind: "proxy-arp-off", loses: true, do: alter("sysctl -w net.ipv4.conf.LINK.proxy_arp=0")},
		{kind: "gateway-address-removed", loses: true, do: alter("ip addr del 169.254.1.1/32 dev LINK")},
		{kind: "workload-link-flap", loses: true, do: flapWorkload},
		{kind: "uplink-flap", loses: true, do: flapUplink},
		{kind: "uplink-silent", loses: true, do: silentUplink},
		{kind: "uplink-address-removed", loses: true, do: removeAddress},
	}
}

// link is a workload's interface on its host.
func (w *world) link(ctx context.Context, workload string) (string, error) {
	all, err := w.store.List(ctx, api.ResourcesPrefix+"workloadendpoints/default/h"+workload[1:]+"-k8s-"+workload+"-eth0")
	if err != nil {
		return "", err
	}
	for _, u := range all.Items {
		_, rest, _ := strings.Cut(string(u.Value), `"interfaceName":"`)
		name, _, _ := strings.Cut(rest, `"`)
		return name, nil
	}
	return "", fmt.Errorf("no endpoint of %s", workload)
}

// command fills in a workload's names and splits.
func (w *world) command(ctx context.Context, text, workload string) ([]string, error) {
	link, err := w.link(ctx, workload)
	if err != nil {
		return nil, err
	}
	v4, err := w.at(workload, false)
	if err != nil {
		return nil, err
	}
	v6, err := w.at(workload, true)
	text = strings.NewReplacer("LINK", link, "ADDR4", prefix(v4.addr), "ADDR6", prefix(v6.addr)).Replace(text)
	return strings.Fields(text), err
}

// alter changes something on a host that the daemons must repair. If the program succeeds, the kernel took the change.
func alter(text string) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		host, workload := anyWorkload(rng)
		argv, err := w.command(ctx, text, workload)
		if err != nil {
			return err
		}
		w.logf("  %s: %s", host, strings.Join(argv, " "))
		_, err = w.run(ctx, host, argv...)
		return err
	}
}

// repairIn is how long a deleted table may let through what it denied, as decision 002 has it, on a machine that is busy.
const repairIn = time.Second

// meddle does to the table what nft can. A table that has an owner refuses it to everybody else; else it is done, and
// denied packets that pass until the agent has been notified are excused where the whole table is gone.
func meddle(text string) func(context.Context, *world, *rand.Rand) error {
	return func(ctx context.Context, w *world, rng *rand.Rand) error {
		host, workload := anyWorkload(rng)
		argv, err := w.command(ctx, text, workload)
		if err != nil {
			return err
		}
		owned, before, err := w.table(ctx, host)
		if err != nil {
			return err
		}
		if owned != w.owned {
			return fmt.Errorf("the table of %s has an owner: %v; at the begin it was %v", host, owned, w.owned)
		}
		whole := strings.Contains(text, "delete table") || strings.Contains(text, "flush ruleset")
		if whole && !owned {
			w.excuse(time.Hour) // until it is gone, which a busy machine takes its time for
		}
		_, err = w.run(ctx, host, argv...)
		if whole && !owned {
			w.excuse(repairIn)
		}
		w.logf("  %s: %s; the table has an owner: %v; %v", host, strings.Join(argv, " "), owned, err)
		switch {
		case !owned:
			return err
		case strings.Contains(text, "flush ruleset"): // it passes over tables that have an owner
			_, after, listed := w.table(ctx, host)
			if listed == nil && after != before {
				listed = errors.New("a table that has an owner was changed by a flush of the ruleset")
			}
			return errors.Join(err, listed)
		case err == nil || !strings.Contains(err.Error(), "Operation not permitted"):
			return fmt.Errorf("a table that has an owner may be changed by others: %w", err)
		}
		return nil
	}
}

// table says whether our table belongs to the agent alone, and how it is listed.
func (w *world) table(ctx context.Context, host string) (owned bool, text string, err error) {
	text, err = w.run(ctx, host, "nft", "-s", "-t", "list", "table", "inet", "twill")
	head, _, _ := strings.Cut(text, "chain ")
	return strings.Contains(head, "owner"), text, err
}

func flapWorkload(ctx context.Context, w *world, rng *rand.Rand) error {
	host, workload := anyWorkload(rng)
	link, err := w.link(ctx, workload)
	if err != nil {
		return err
	}
	w.logf("  %s: %s of %s goes down", host, link, workload)
	return w.flap(ctx, rng, place{host, link})
}

// place is an interface in a namespace.
type place struct{ ns, link string }

// flap takes an interface down and up again, up to three times.
func (w *world) flap(ctx context.Context, rng *rand.Rand, at place) error {
	for range 1 + rng.IntN(3) {
		if _, err := w.run(ctx, at.ns, "ip", "link", "set", at.link, "down"); err != nil {
			return err
		}
		text, err := w.run(ctx, at.ns, "ip", "-o", "link", "show", at.link)
		if err == nil && strings.Contains(text, ",UP") {
			err = fmt.Errorf("%s is still up: %s", at.link, text)
		}
		wait(ctx, span(rng, 0, 500*time.Millisecond))
		if _, undo := w.run(context.WithoutCancel(ctx), at.ns, "ip", "link", "set", at.link, "up"); undo != nil || err != nil {
			return errors.Join(err, undo)
		}
	}
	return nil
}

// flapUplink takes the carrier off a host's uplink: at its port of the switch.
func flapUplink(ctx context.Context, w *world, rng *rand.Rand) error {
	host := anyHost(rng)
	w.logf("  the carrier of %s goes", host)
	return w.flap(ctx, rng, place{"switch", host})
}

// silentUplink loses all packets of a host for up to five seconds, and no carrier.
func silentUplink(ctx context.Context, w *world, rng *rand.Rand) error {
	host := anyHost(rng)
	if _, err := w.run(ctx, "switch", "ip", "link", "set", host, "nomaster"); err != nil {
		return err
	}
	w.logf("  %s is off its switch", host)
	_, answered := w.throughProxy(host, 300*time.Millisecond)
	wait(ctx, span(rng, 0, 4500*time.Millisecond))
	_, err := w.run(context.WithoutCancel(ctx), "switch", "ip", "link", "set", host, "master", "br0")
	if answered == nil {
		err = errors.Join(err, fmt.Errorf("%s still reaches the store", host))
	}
	return err
}

// removeAddress takes a host's IPv4 address away, and gives it back.
func removeAddress(ctx context.Context, w *world, rng *rand.Rand) error {
	host := anyHost(rng)
	addr := "172.30.0." + host[1:] + "/24"
	if _, err := w.run(ctx, host, "ip", "addr", "del", addr, "dev", "eth0"); err != nil {
		return err
	}
	w.logf("  %s has lost %s", host, addr)
	wait(ctx, span(rng, 0, 2*time.Second))
	_, err := w.run(context.WithoutCancel(ctx), host, "ip", "addr", "add", addr, "dev", "eth0")
	return err
}
