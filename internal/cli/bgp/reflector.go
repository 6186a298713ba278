package bgp

import (
	"net/netip"
	"os"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/node"
)

// Registration is what a dedicated reflector writes into its Node; empty: nothing.
type Registration struct{ Cluster string }

func (r *Registration) AddFlags(f *pflag.FlagSet) {
	f.StringVar(&r.Cluster, "cluster-id", os.Getenv("TWILL_CLUSTER_ID"), "of a reflector: write this cluster id, and the label "+node.ReflectorLabel+", into the Node (TWILL_CLUSTER_ID)")
}

// Args returns the flags for the child process.
func (r *Registration) Args() []string {
	if r.Cluster == "" {
		return nil
	}
	return []string{"--cluster-id=" + r.Cluster}
}

// Check returns an error for a cluster id that is not valid, or not one of a dedicated reflector.
func (r *Registration) Check(reflector bool) error {
	if r.Cluster == "" {
		return nil
	}
	if !reflector {
		return console.Usage("--cluster-id is that of a dedicated reflector (twill node --bgp=reflector or bird-reflector); of other hosts, see \"twill patch node\"")
	}
	if a, err := netip.ParseAddr(r.Cluster); err != nil || !a.Is4() {
		return console.Usage("--cluster-id=%s: want a number in the form of an IPv4 address, such as 244.0.0.1", r.Cluster)
	}
	return nil
}
