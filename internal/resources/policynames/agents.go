package policynames

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/status"
)

// since is the version of Calico from which on its agents know a policy of tier default whose key does not begin with the tier.
var since = [2]int{3, 32}

// OldAgentsError is that agents may run to which a policy is none under the name that its users know: it would be out of force there.
type OldAgentsError struct{ Nodes []string }

// Error names the first of them.
func (e *OldAgentsError) Error() string {
	const most = 5
	named := strings.Join(e.Nodes[:min(most, len(e.Nodes))], ", ")
	if more := len(e.Nodes) - most; more > 0 {
		named += fmt.Sprintf(" and %d more", more)
	}
	return fmt.Sprintf("no agent of Twill's reports on %s, and the cluster's calicoVersion is not v%d.%d or later: an older agent there would lose policies that are renamed", named, since[0], since[1])
}

// CheckAgents is *[OldAgentsError] if a Node has no agent of Twill's that reports there, and the cluster does not say that Calico's
// are of a version that knows policies by their names. A report that has expired proves nothing: where Twill's agent ended, one of Calico's may run,
// which does not report at all with Kubernetes' API as the datastore.
func CheckAgents(ctx context.Context, s datastore.Store) error {
	if recent, err := recentCalico(ctx, s); err != nil || recent {
		return err
	}
	nodes, err := s.List(ctx, api.KeyPrefix(api.KindNode, ""))
	if err != nil {
		return err
	}
	reports, err := status.Nodes(ctx, s)
	if err != nil {
		return err
	}
	var unknown []string
	for _, u := range nodes.Sorted() {
		ref, ok := api.ParseKey(u.Key)
		twills := slices.ContainsFunc(reports, func(r status.NodeStatus) bool { return r.Node == ref.Name && r.Alive && r.Last.Version != "" })
		if ok && !twills {
			unknown = append(unknown, ref.Name)
		}
	}
	if len(unknown) > 0 {
		return &OldAgentsError{unknown}
	}
	return nil
}

// recentCalico reports whether the cluster says that Calico's version in it is since or later.
func recentCalico(ctx context.Context, s datastore.Store) (bool, error) {
	snap, err := s.List(ctx, api.KeyPrefix(api.KindClusterInformation, "")) // what the controllers may do; there is one
	version := ""
	for _, u := range snap.Items {
		st, _ := api.DecodeStored(u) // what cannot be read says nothing
		if info, ok := st.Resource.(*api.ClusterInformation); ok && st.Ref == resources.ClusterInfo {
			version = info.Spec.CalicoVersion
		}
	}
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if err != nil || len(parts) < 2 {
		return false, err
	}
	major, err1 := strconv.Atoi(parts[0])
	minor, err2 := strconv.Atoi(parts[1])
	return err1 == nil && err2 == nil && slices.Compare([]int{major, minor}, since[:]) >= 0, nil
}
