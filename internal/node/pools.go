package node

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// Pools says which pools are made in addition to those that the environment names. The zero value: none.
type Pools struct {
	// Unasked: also where the environment names none, as upstream's node does: of IPv4 and, if the host has it, of IPv6.
	Unasked bool
	IPv6    bool           // the host has IPv6
	Subnets []netip.Prefix // what the cluster's installer meant for pods; the first of each family counts
	Host    []netip.Prefix // networks of this host, with which an unasked pool of IPv4 must not clash
}

// family is one of the two as the environment names it.
type family struct {
	env, name string
	v4        bool
}

var families = []family{{"CALICO_IPV4POOL_", "default-ipv4-ippool", true}, {"CALICO_IPV6POOL_", "default-ipv6-ippool", false}}

func (f family) get(name string) string { return strings.TrimSpace(os.Getenv(f.env + name)) }

// FirstPools are the pools that the environment asks for, with the names and variables that calico/node has. Without
// CALICO_IPV4POOL_CIDR there is none: only the user knows which addresses are free.
func FirstPools() ([]*api.IPPool, error) { return Pools{}.Wanted() }

// Wanted are the pools, of which each is made if there is none of its family.
func (w Pools) Wanted() (out []*api.IPPool, err error) {
	if yes(os.Getenv("NO_DEFAULT_POOLS")) {
		for _, f := range families {
			if w.Unasked && f.get("CIDR") != "" {
				return nil, fmt.Errorf("NO_DEFAULT_POOLS and %sCIDR are both set: want one of them", f.env)
			}
		}
		return nil, nil
	}
	for _, f := range families {
		cidr, err := w.cidr(f)
		if err != nil {
			return nil, err
		}
		if cidr == "" {
			continue
		}
		p, err := f.pool(cidr)
		if err != nil {
			return nil, err
		}
		out = append(out, p)
	}
	return out, nil
}

// cidr is the range of a family's pool; empty: there is to be none.
func (w Pools) cidr(f family) (string, error) {
	switch given := f.get("CIDR"); {
	case strings.EqualFold(given, "none") || given == "" && !w.Unasked:
		return "", nil
	case given != "":
		return given, nil
	}
	for _, s := range w.Subnets {
		if s.Addr().Is4() == f.v4 {
			return s.String(), nil
		}
	}
	if f.v4 {
		return w.free()
	}
	if !w.IPv6 {
		return "", nil
	}
	random := [16]byte{0xfd} // a prefix of one's own, by RFC 4193
	_, _ = rand.Read(random[1:6])
	return netip.PrefixFrom(netip.AddrFrom16(random), 48).String(), nil
}

// free is the first range of those that upstream tries in which this host has no network.
func (w Pools) free() (string, error) {
	try := []string{"192.168.0.0/16"}
	for i := 16; i < 32; i++ {
		try = append(try, fmt.Sprintf("172.%d.0.0/16", i))
	}
	for _, text := range try {
		p := netip.MustParsePrefix(text)
		if !slices.ContainsFunc(w.Host, func(h netip.Prefix) bool { return h.Bits() > 0 && p.Overlaps(h) }) {
			return text, nil
		}
	}
	return "", errNoneFree
}

// errNoneFree is that of a host of which it cannot be guessed which addresses are free.
var errNoneFree = errors.New("this host has networks in 192.168.0.0/16 and in each of 172.16.0.0/16 to 172.31.0.0/16: say in CALICO_IPV4POOL_CIDR which addresses are free, or NO_DEFAULT_POOLS=true")

// pool is that of a range, and of what the environment says of it.
func (f family) pool(cidr string) (*api.IPPool, error) {
	p := api.New(api.KindIPPool).(*api.IPPool)
	p.Metadata.Name = f.name
	p.Spec.CIDR, p.Spec.IPIPMode, p.Spec.VXLANMode, p.Spec.NodeSelector = cidr, mode(f.get("IPIP")), mode(f.get("VXLAN")), f.get("NODE_SELECTOR")
	p.Spec.DisableBGPExport, p.Spec.NATOutgoing = f.truth("DISABLE_BGP_EXPORT", false), f.truth("NAT_OUTGOING", f.v4) // upstream's defaults
	if size := f.get("BLOCK_SIZE"); size != "" {
		var err error
		if p.Spec.BlockSize, err = strconv.Atoi(size); err != nil {
			return nil, fmt.Errorf("%sBLOCK_SIZE is %q: want a number", f.env, size)
		}
	}
	api.Default(p)
	if err := api.Validate(p).Err(); err != nil {
		return nil, fmt.Errorf("%s…: %w", f.env, err)
	}
	if netip.MustParsePrefix(p.Spec.CIDR).Addr().Is4() != f.v4 {
		return nil, fmt.Errorf("%sCIDR is %q: want a range of the other family", f.env, cidr)
	}
	return p, nil
}

// truth reads a variable as upstream does: whatever is not a no is a yes.
func (f family) truth(name string, unset bool) bool {
	if text := f.get(name); text != "" {
		return !slices.Contains([]string{"false", "0", "no", "n", "f"}, strings.ToLower(text))
	}
	return unset
}

// mode reads Always, CrossSubnet and Never in any case; upstream takes Off for Never, and Cross-Subnet, too.
func mode(text string) string {
	for _, m := range []string{"Always", "CrossSubnet", "Never"} {
		if strings.EqualFold(text, m) {
			return m
		}
	}
	switch strings.ToLower(text) {
	case "off":
		return "Never"
	case "cross-subnet":
		return "CrossSubnet"
	}
	return text
}

func yes(text string) bool { return strings.EqualFold(text, "true") || text == "1" }

// EnsurePools makes the pools that there are to be, each if the datastore has none of its family.
func EnsurePools(ctx context.Context, store datastore.Store, w Pools) error {
	if !w.Unasked {
		if wanted, err := w.Wanted(); err != nil || len(wanted) == 0 {
			return err
		}
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
	if has[true] && has[false] {
		return nil
	}
	if has[true] {
		w.Host = nil // the host may have addresses in the pool that is there
	}
	wanted, err := w.Wanted()
	if err != nil {
		return err
	}
	var refused []error
	for _, p := range wanted {
		if has[netip.MustParsePrefix(p.Spec.CIDR).Addr().Is4()] {
			continue
		}
		err := mayBeMade(ctx, store, p)
		if errors.Is(err, errRefused) { // that of the other family may be
			refused = append(refused, err)
			continue
		}
		if err != nil {
			return err
		}
		if _, err := resources.CreateNew(ctx, store, p); err != nil && !errors.Is(err, datastore.ErrExists) {
			return fmt.Errorf("make IPPool %s: %w", p.Metadata.Name, err)
		}
	}
	return errors.Join(refused...)
}

// errRefused is that of a first pool that would be refused if a user applied it: in its range a former pool may have left blocks of another size.
var errRefused = errors.New("what CALICO_IPV4POOL_… and CALICO_IPV6POOL_…, or their defaults, say is refused")

// mayBeMade refuses a pool that `twill apply` would refuse, too.
func mayBeMade(ctx context.Context, store datastore.Store, p *api.IPPool) error {
	err := resources.CheckPools(ctx, store, []resources.Manifest{{File: "the first pool", Document: api.Document{Resource: p}}})
	if wrong := (*api.FieldError)(nil); errors.As(err, &wrong) {
		return fmt.Errorf("%w: %w", errRefused, err)
	}
	return err
}
