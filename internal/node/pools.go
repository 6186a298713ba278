package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// FirstPools are the pools that the environment asks for, with the names and variables that calico/node has. Without
// CALICO_IPV4POOL_CIDR there is none: only the user knows which addresses are free.
func FirstPools() (out []*api.IPPool, err error) {
	if yes(os.Getenv("NO_DEFAULT_POOLS")) {
		return nil, nil
	}
	for _, f := range []struct{ env, name string }{{"CALICO_IPV4POOL_", "default-ipv4-ippool"}, {"CALICO_IPV6POOL_", "default-ipv6-ippool"}} {
		get := func(name string) string { return strings.TrimSpace(os.Getenv(f.env + name)) }
		if get("CIDR") == "" || strings.EqualFold(get("CIDR"), "none") {
			continue
		}
		p := api.New(api.KindIPPool).(*api.IPPool)
		p.Metadata.Name = f.name
		p.Spec.CIDR, p.Spec.IPIPMode, p.Spec.VXLANMode, p.Spec.NodeSelector = get("CIDR"), mode(get("IPIP")), mode(get("VXLAN")), get("NODE_SELECTOR")
		p.Spec.DisableBGPExport = yes(get("DISABLE_BGP_EXPORT"))
		p.Spec.NATOutgoing = yes(cmp.Or(get("NAT_OUTGOING"), strconv.FormatBool(f.env == "CALICO_IPV4POOL_"))) // upstream's defaults
		if size := get("BLOCK_SIZE"); size != "" {
			if p.Spec.BlockSize, err = strconv.Atoi(size); err != nil {
				return nil, fmt.Errorf("%sBLOCK_SIZE is %q: want a number", f.env, size)
			}
		}
		api.Default(p)
		if err := api.Validate(p).Err(); err != nil {
			return nil, fmt.Errorf("%s…: %w", f.env, err)
		}
		out = append(out, p)
	}
	return out, nil
}

// mode reads Always, CrossSubnet and Never in any case; upstream takes Off for Never.
func mode(text string) string {
	for _, m := range []string{"Always", "CrossSubnet", "Never"} {
		if strings.EqualFold(text, m) {
			return m
		}
	}
	if strings.EqualFold(text, "off") {
		return "Never"
	}
	return text
}

func yes(text string) bool { return strings.EqualFold(text, "true") || text == "1" }

// EnsurePools makes the pools that the environment asks for, if the datastore has none of their family.
func EnsurePools(ctx context.Context, store datastore.Store) error {
	wanted, err := FirstPools()
	if err != nil || len(wanted) == 0 {
		return err
	}
	snap, err := store.List(ctx, api.KeyPrefix(api.KindIPPool, ""))
	if err != nil {
		return err
	}
	has := map[bool]bool{}
	for _, u := range snap.Items {
		s, err := api.Admit(u)
		if err != nil {
			return nil // there is a pool of unknown family
		}
		if p, err := netip.ParsePrefix(s.Resource.(*api.IPPool).Spec.CIDR); err == nil {
			has[p.Addr().Is4()] = true
		}
	}
	for _, p := range wanted {
		if has[netip.MustParsePrefix(p.Spec.CIDR).Addr().Is4()] {
			continue
		}
		if _, err := resources.CreateNew(ctx, store, p); err != nil && !errors.Is(err, datastore.ErrExists) {
			return fmt.Errorf("make IPPool %s: %w", p.Metadata.Name, err)
		}
	}
	return nil
}
