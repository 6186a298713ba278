package manifests

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// WarnInterfaces says of workload endpoints that their node will refuse them, since their interface is not a workload's.
// Only a warning: prefixes in a node's own file or environment are not known here, nor what its plugins attach. Without a
// datastore s is nil, and the files alone say which prefixes there are.
func WarnInterfaces(ctx context.Context, c console.Stdio, s datastore.Store, ms []resources.Manifest) error {
	if !slices.ContainsFunc(ms, func(m resources.Manifest) bool { return m.Resource.Type().Kind == api.KindWorkloadEndpoint }) {
		return nil
	}
	prefixes := config.New("").Resolve().Settings.InterfacePrefixes
	add := func(r api.Resource) {
		if f, ok := r.(*api.FelixConfiguration); ok {
			layers := config.New("")
			f := *f
			f.Metadata.Name, f.Spec.NodeSelector = "default", ""
			layers.Set(&f)
			prefixes = append(prefixes, layers.Resolve().Settings.InterfacePrefixes...)
		}
	}
	if s != nil {
		snap, err := s.List(ctx, api.KeyPrefix(api.KindFelixConfiguration, ""))
		if err != nil {
			return err
		}
		for _, u := range snap.Items {
			if st, err := api.DecodeStored(u); err == nil {
				add(st.Resource)
			}
		}
	}
	for _, m := range ms {
		add(m.Resource)
	}
	slices.Sort(prefixes)
	prefixes = slices.Compact(prefixes)
	for _, m := range ms {
		w, ok := m.Resource.(*api.WorkloadEndpoint)
		if !ok || w.Spec.InterfaceName == "" || w.Spec.InterfaceName != "lo" && slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(w.Spec.InterfaceName, p) }) {
			continue
		}
		why := fmt.Sprintf("begins with none of interfacePrefix (%s): node %s will refuse the endpoint, and not touch the interface, unless its own settings have the prefix", strings.Join(prefixes, ", "), w.Spec.Node)
		if w.Spec.InterfaceName == "lo" {
			why = fmt.Sprintf("is the host's own: node %s will refuse the endpoint", w.Spec.Node)
		}
		fmt.Fprintf(c.Err, "warning: %s: %s: spec.interfaceName: %s %s\n", m.File, resources.Short(api.RefOf(w)), w.Spec.InterfaceName, why)
	}
	return nil
}
