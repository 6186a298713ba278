package node_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/node"
)

// ranges are the pools that a node wants.
func ranges(t *testing.T, w node.Pools) string {
	t.Helper()
	wanted, err := w.Wanted()
	if err != nil {
		return err.Error()
	}
	var out []string
	for _, p := range wanted {
		out = append(out, p.Metadata.Name+"="+p.Spec.CIDR)
	}
	return strings.Join(out, " ")
}

// TestPoolsThatNobodyNamed are upstream's: of IPv4 one in which the host has no network.
func TestPoolsThatNobodyNamed(t *testing.T) {
	const v4 = "default-ipv4-ippool="
	all := []string{"192.168.7.1/24"}
	for i := 16; i < 32; i++ {
		all = append(all, fmt.Sprintf("172.%d.0.1/16", i))
	}
	for _, tt := range []struct {
		name, env, subnets, host, want string
	}{
		{name: "on an empty host", want: v4 + "192.168.0.0/16"},
		{name: "a home's network", host: "127.0.0.1/8 192.168.7.1/24 10.0.0.1/8", want: v4 + "172.16.0.0/16"},
		{name: "and others", host: "192.168.7.1/24 172.16.3.4/12 2001:db8::1/64", want: "say in CALICO_IPV4POOL_CIDR"},
		{name: "an address without a network", host: "192.168.7.1/32 172.16.3.4/32 172.17.0.1/16", want: v4 + "172.18.0.0/16"},
		{name: "a prefix that is all of it says nothing", host: "10.0.0.1/0", want: v4 + "192.168.0.0/16"},
		{name: "none is free", host: strings.Join(all, " "), want: "say in CALICO_IPV4POOL_CIDR"},
		{name: "what kubeadm was told, whatever the host has", subnets: "fd00:1::/48 10.244.0.0/16 10.245.0.0/16", host: "10.244.0.1/24", want: v4 + "10.244.0.0/16 default-ipv6-ippool=fd00:1::/48"},
		{name: "what the environment says comes first", env: "CALICO_IPV4POOL_CIDR=10.9.0.0/16", subnets: "10.244.0.0/16", want: v4 + "10.9.0.0/16"},
		{name: "no IPv4", env: "CALICO_IPV4POOL_CIDR=none", subnets: "10.244.0.0/16", want: ""},
		{name: "none at all", env: "NO_DEFAULT_POOLS=true", subnets: "10.244.0.0/16", want: ""},
		{name: "none, and one", env: "NO_DEFAULT_POOLS=true CALICO_IPV4POOL_CIDR=10.9.0.0/16", want: "NO_DEFAULT_POOLS and CALICO_IPV4POOL_CIDR are both set"},
		{name: "of the other family", env: "CALICO_IPV4POOL_CIDR=fd00::/48", want: "want a range of the other family"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.NothingSet(t)
			for _, e := range strings.Fields(tt.env) {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			w := node.Pools{Unasked: true}
			for _, p := range strings.Fields(tt.subnets) {
				w.Subnets = append(w.Subnets, netip.MustParsePrefix(p))
			}
			for _, p := range strings.Fields(tt.host) {
				w.Host = append(w.Host, netip.MustParsePrefix(p).Masked())
			}
			if got := ranges(t, w); got != tt.want && !(strings.Contains(tt.want, " ") && !strings.HasPrefix(tt.want, v4) && strings.Contains(got, tt.want)) {
				t.Errorf("pools %q, want %q", got, tt.want)
			}
		})
	}
}

// TestAnUnaskedPoolOfIPv6IsOnesOwn, by chance, so that no two sites have the same.
func TestAnUnaskedPoolOfIPv6IsOnesOwn(t *testing.T) {
	clitest.NothingSet(t)
	seen := map[string]bool{}
	for range 3 {
		_, text, _ := strings.Cut(ranges(t, node.Pools{Unasked: true, IPv6: true}), "default-ipv6-ippool=")
		p, err := netip.ParsePrefix(text)
		if err != nil || p.Bits() != 48 || !netip.MustParsePrefix("fd00::/8").Contains(p.Addr()) || seen[text] {
			t.Errorf("%q, %v: want a /48 within fd00::/8 that none had before", text, err)
		}
		seen[text] = true
	}
}

// start is what upstream's node would make, on a host without IPv6.
func start(t *testing.T) node.Startup {
	return node.Startup{Node: "h1", PerNode: true, Log: slog.New(slog.NewTextHandler(t.Output(), nil))}
}

// TestAStartMakesWhatUpstreamsNodeMakes, and again changes nothing.
func TestAStartMakesWhatUpstreamsNodeMakes(t *testing.T) {
	clitest.NothingSet(t)
	t.Setenv("CLUSTER_TYPE", "k8s,bgp")
	c := newCLI(t)
	s := start(t)
	s.Datastore = "kdd"
	s.Kubernetes = func(context.Context) (node.Kubernetes, error) {
		return node.Kubernetes{Types: []string{"kubeadm"}, Subnets: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}}, nil
	}
	var before string
	for i := range 2 {
		if err := s.Fill(t.Context(), c.Store); err != nil {
			t.Fatal(err)
		}
		all, err := c.Store.List(t.Context(), api.Root)
		if err != nil {
			t.Fatal(err)
		}
		if now := fmt.Sprint(all.Sorted()); i == 0 {
			before = now
		} else if now != before {
			t.Errorf("a second start changes\n%s\nto\n%s", before, now)
		}
		for _, u := range all.Items {
			if st, err := api.DecodeStored(u); strings.HasPrefix(u.Key, api.ResourcesPrefix) && (err != nil || len(st.Problems) > 0) {
				t.Errorf("%s: %v %v", u.Key, err, st.Problems)
			}
		}
	}
	for key, want := range map[string]string{
		"clusterinformations/default": `"clusterType":"twill,k8s,bgp,kubeadm,kdd"`, "ippools/default-ipv4-ippool": `"cidr":"10.244.0.0/16"`,
		"felixconfigurations/default": `"reportingInterval":"0s"`, "felixconfigurations/node.h1": `"defaultEndpointToHostAction":"Return"`,
		"bgpconfigurations/default": `"spec":{}`,
	} {
		clitest.Contains(t, c.Stored(key), want)
	}
	clitest.Contains(t, c.Stored("felixconfigurations/default"), `"logSeverityScreen":"Info"`)
	_, out, _ := c.Run("", "get", "ipamconfigurations", "-o", "yaml")
	clitest.Contains(t, out, "autoAllocateBlocks: true", "kubeVirtVMAddressPersistence: Enabled", "strictAffinity: false")
}

// TestAStartLeavesWhatIsThere: values stay, and nobody's Drop becomes a Return.
func TestAStartLeavesWhatIsThere(t *testing.T) {
	for _, tt := range []struct {
		name, key, spec string
		want            map[string]string // by key, what it has at the end; -: it is not there
	}{
		{"settings of all", "felixconfigurations/default", `{"reportingInterval":"30s","newer":1}`, map[string]string{
			"felixconfigurations/default": `"reportingInterval":"30s"`, "felixconfigurations/node.h1": `"Return"`,
		}},
		{"an administrator's Drop", "felixconfigurations/default", `{"defaultEndpointToHostAction":"Drop"}`, map[string]string{
			"felixconfigurations/default": `"logSeverityScreen":"Info"`, "felixconfigurations/node.h1": "-",
		}},
		{"a Drop of some nodes", "felixconfigurations/rack", `{"nodeSelector":"all()","defaultEndpointToHostAction":"Drop"}`, map[string]string{"felixconfigurations/node.h1": "-"}},
		{"another node's", "felixconfigurations/node.h2", `{"defaultEndpointToHostAction":"Drop"}`, map[string]string{"felixconfigurations/node.h1": `"Return"`}},
		{"this node's", "felixconfigurations/node.h1", `{"defaultEndpointToHostAction":"Accept"}`, map[string]string{"felixconfigurations/node.h1": `"Accept"`}},
		{"a pool", "ippools/mine", `{"cidr":"10.0.0.0/16"}`, map[string]string{"ippools/default-ipv4-ippool": "-"}},
		{"BGP", "bgpconfigurations/default", `{"asNumber":64999}`, map[string]string{"bgpconfigurations/default": "64999"}},
		{"what the cluster is", "clusterinformations/default", `{"clusterGUID":"g","clusterType":"k8s","calicoVersion":"v3.30.1","datastoreReady":false}`, map[string]string{
			"clusterinformations/default": `"clusterType":"k8s","calicoVersion":"v3.30.1","datastoreReady":false`,
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.NothingSet(t)
			c := newCLI(t)
			kind, name, _ := strings.Cut(tt.key, "/")
			kinds := map[string]string{"felixconfigurations": "FelixConfiguration", "ippools": "IPPool", "bgpconfigurations": "BGPConfiguration", "clusterinformations": "ClusterInformation"}
			c.Raw(tt.key, fmt.Sprintf(`{"kind":%q,"apiVersion":"projectcalico.org/v3","metadata":{"name":%q,"uid":"u"},"spec":%s}`, kinds[kind], name, tt.spec))
			if err := start(t).Fill(t.Context(), c.Store); err != nil {
				t.Fatal(err)
			}
			for key, want := range tt.want {
				u, err := c.Store.Get(t.Context(), api.ResourcesPrefix+key)
				if is := err == nil; is != (want != "-") || is && !strings.Contains(string(u.Value), want) {
					t.Errorf("%s is %s (%v), want %s", key, u.Value, err, want)
				}
			}
		})
	}
}

// TestWhereNoRangeIsFreeNoPoolIsMade, and all else is; where there is a pool, that is no question.
func TestWhereNoRangeIsFreeNoPoolIsMade(t *testing.T) {
	clitest.NothingSet(t)
	for _, has := range []string{"", "ippools/mine"} {
		c := newCLI(t)
		if has != "" {
			c.Raw(has, `{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"mine","uid":"u"},"spec":{"cidr":"10.0.0.0/16"}}`)
		}
		var log bytes.Buffer
		s := start(t)
		s.Log = slog.New(slog.NewTextHandler(&log, nil))
		s.Pools.Host = []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("172.16.0.0/12")}
		if err := s.Fill(t.Context(), c.Store); err != nil {
			t.Fatal(err)
		}
		if logged := strings.Contains(log.String(), "CALICO_IPV4POOL_CIDR"); logged != (has == "") {
			t.Errorf("with %q: logged %s", has, &log)
		}
		all, err := c.Store.List(t.Context(), api.KeyPrefix(api.KindIPPool, ""))
		if err != nil || len(all.Items) != len(strings.Fields(has)) {
			t.Errorf("with %q: pools %v, %v", has, all.Items, err)
		}
		clitest.Contains(t, c.Stored("clusterinformations/default"), "clusterGUID")
	}
}

// TestAStartNeedsNoTiers: agents have them anyway, and an account or a cluster of an older version knows none. Without the cluster's information it fails.
func TestAStartNeedsNoTiers(t *testing.T) {
	clitest.NothingSet(t)
	for _, tt := range []struct {
		name, part string
		err        error
		ends       bool
	}{
		{"tiers may not be read", "tiers/", datastore.ErrUnauthorized, true},
		{"there are no tiers", "tiers/", errors.New("the cluster has no tiers"), true},
		{"tiers are not answered for", "tiers/", datastore.ErrUnavailable, false},
		{"the cluster's information may not be read", "clusterinformations/", datastore.ErrUnauthorized, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			store := storetest.New(t)
			store.Fail(func(o memstore.Op) error {
				if strings.HasPrefix(o.Key, api.ResourcesPrefix+tt.part) {
					return tt.err
				}
				return nil
			})
			var log bytes.Buffer
			s := start(t)
			s.Log = slog.New(slog.NewTextHandler(&log, nil))
			for name, fill := range map[string]func(context.Context, datastore.Store) error{"-startup": s.Fill, "twill node": node.Fill(s.Log)} {
				log.Reset()
				err := fill(t.Context(), store)
				if tt.ends && err != nil || !tt.ends && !errors.Is(err, tt.err) {
					t.Errorf("%s: %v, want an end: %v", name, err, tt.ends)
				}
				if logged := strings.Count(log.String(), "Tier kube-admin: "); tt.ends && logged != 1 || !tt.ends && logged != 0 {
					t.Errorf("%s: logged %s", name, &log)
				}
			}
			if _, err := store.Get(t.Context(), api.ResourcesPrefix+"bgpconfigurations/default"); err != nil {
				t.Errorf("what comes after it: %v", err)
			}
		})
	}
}

// TestANodeThatMayNotMakeDefaultsGoesOn: upstream's older manifests let a node write pools and the cluster's information alone.
func TestANodeThatMayNotMakeDefaultsGoesOn(t *testing.T) {
	clitest.NothingSet(t)
	store := storetest.New(t)
	store.Fail(func(o memstore.Op) error {
		if o.Verb != "get" && o.Verb != "list" && (strings.Contains(o.Key, "configurations/") || o.Key == api.IPAMConfigKey) {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	if err := start(t).Fill(t.Context(), store); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(t.Context(), api.ResourcesPrefix+"ippools/default-ipv4-ippool"); err != nil {
		t.Error(err)
	}
	store.Fail(func(o memstore.Op) error {
		if o.Verb != "get" && o.Verb != "list" {
			return datastore.ErrUnauthorized
		}
		return nil
	})
	for _, types := range []string{"twill", "twill,bgp"} { // of which nothing is missing, and of which something is
		t.Setenv("CLUSTER_TYPE", types)
		if err := node.Fill(start(t).Log)(t.Context(), store); err != nil {
			t.Errorf("with CLUSTER_TYPE=%s: %v", types, err)
		}
	}
}
