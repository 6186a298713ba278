package ctl

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
)

// reflectorLabel is what the guide's BGPPeer selects reflectors by.
const reflectorLabel = "route-reflector"

// registration is what a dedicated reflector is told to write into its Node, and nothing that is not told.
type registration struct {
	cluster string
	ips     []string
}

func (r *registration) addFlags(f *pflag.FlagSet) {
	f.StringVar(&r.cluster, "cluster-id", os.Getenv("TWILL_CLUSTER_ID"), "of a reflector: write this cluster id, and the label "+reflectorLabel+", into the Node (TWILL_CLUSTER_ID)")
	f.StringSliceVar(&r.ips, "ip", strings.FieldsFunc(os.Getenv("TWILL_IP"), func(c rune) bool { return c == ',' }),
		"of a reflector: write these addresses into the Node, one of each family, with or without /LENGTH (TWILL_IP)")
}

// args hand it on to the child.
func (r *registration) args() []string {
	var out []string
	if r.cluster != "" {
		out = append(out, "--cluster-id="+r.cluster)
	}
	if len(r.ips) > 0 {
		out = append(out, "--ip="+strings.Join(r.ips, ","))
	}
	return out
}

func (r *registration) asked() bool { return r.cluster != "" || len(r.ips) > 0 }

// check refuses what is wrong, or is told to a host that is no dedicated reflector.
func (r *registration) check(reflector bool) error {
	if r.asked() && !reflector {
		return usage("--cluster-id and --ip are those of a dedicated reflector (twill bgp --reflector, twill node --bgp=reflector); of other hosts, see \"twill patch node\"")
	}
	_, err := r.spec()
	return err
}

// spec is what it says, checked.
func (r *registration) spec() (api.NodeBGPSpec, error) {
	var out api.NodeBGPSpec
	if r.cluster != "" {
		if a, err := netip.ParseAddr(r.cluster); err != nil || !a.Is4() {
			return out, usage("--cluster-id=%s: want a number in the form of an IPv4 address, such as 244.0.0.1", r.cluster)
		}
		out.RouteReflectorClusterID = r.cluster
	}
	for _, text := range r.ips {
		p, err := netip.ParsePrefix(text)
		if a, e := netip.ParseAddr(text); e == nil {
			p, err = netip.PrefixFrom(a, a.BitLen()), nil
		}
		into := &out.IPv6Address
		if p.Addr().Is4() {
			into = &out.IPv4Address
		}
		if err != nil || p.Addr().Is4In6() || *into != "" {
			return out, usage("--ip=%s: want an address of this host by which peers know it, one of each family: 192.0.2.1/24,2001:db8::1/64", text)
		}
		*into = text
	}
	return out, nil
}

// registerLater writes it into the Node when the datastore answers, however long that takes.
func (r *registration) registerLater(ctx context.Context, cfg etcdstore.Config, node string, log *slog.Logger) {
	wait := time.NewTicker(2 * time.Second)
	defer wait.Stop()
	said := ""
	for {
		err := func() error {
			store, err := etcdstore.New(ctx, cfg)
			if err != nil {
				return err
			}
			defer store.Close()
			return r.register(ctx, store, node)
		}()
		if err == nil || ctx.Err() != nil {
			return
		}
		if said != err.Error() {
			log.Error("this node is not registered yet", "node", node, "err", err, "retry_in", 2*time.Second)
			said = err.Error()
		}
		select {
		case <-ctx.Done():
			return
		case <-wait.C:
		}
	}
}

// register makes the Node say so. What else is in it stays.
func (r *registration) register(ctx context.Context, s datastore.Store, name string) error {
	want, err := r.spec()
	if err != nil {
		return err
	}
	ref := api.Ref{Kind: api.KindNode, Name: name}
	_, err = rewriting(ctx, s, rewrite{ref, "registered", func(doc any) (any, error) { return registered(doc, want) }})
	var missing *missingError
	if !errors.As(err, &missing) {
		return err
	}
	node := api.New(api.KindNode).(*api.Node)
	node.Metadata.Name, node.Spec.BGP = name, &want
	if want.RouteReflectorClusterID != "" {
		node.Metadata.Labels = map[string]string{reflectorLabel: ""}
	}
	_, err = createNew(ctx, s, node)
	return err
}

// registered puts what is wanted into a Node's document.
func registered(doc any, want api.NodeBGPSpec) (any, error) {
	top, ok := doc.(map[string]any)
	if !ok {
		return doc, nil // it is refused as it is
	}
	bgp := object(object(top, "spec"), "bgp")
	for name, value := range map[string]string{
		"routeReflectorClusterID": want.RouteReflectorClusterID, "ipv4Address": want.IPv4Address, "ipv6Address": want.IPv6Address,
	} {
		if value != "" {
			bgp[name] = value
		}
	}
	labels := object(object(top, "metadata"), "labels")
	if _, labelled := labels[reflectorLabel]; !labelled && want.RouteReflectorClusterID != "" {
		labels[reflectorLabel] = ""
	}
	return doc, nil
}

// object is a member of an object that is one itself; it is made if it is not there.
func object(in map[string]any, name string) map[string]any {
	o, ok := in[name].(map[string]any)
	if !ok {
		o = map[string]any{}
		in[name] = o
	}
	return o
}
