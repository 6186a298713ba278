package etcdadmin

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
)

// refused is an error that says what to do first.
func refused(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrRefused, fmt.Sprintf(format, args...))
}

// Join adds a member that has no data yet, reached by the others at its peer URLs, as a learner, which does not count for the majority, and returns all members as
// NAME=PEER-URL,…, with which it is started (Cluster and Join of package member's Config). A member that was added, and did not come to start, is not added again. Replace
// names a member that is dead, in whose place it comes: that one is taken out first; empty: none. It is refused if the cluster would not be the safer for it.
func (a *Admin) Join(ctx context.Context, name string, peerURLs []string, replace string) (cluster string, err error) {
	c, err := a.Status(ctx)
	if err == nil && replace != "" {
		c, err = a.takeOut(ctx, c, replace)
	}
	if err != nil {
		return "", err
	}
	added, err := c.mayJoin(name, peerURLs)
	if err != nil {
		return "", err
	}
	if !added {
		err := a.whileUnsettled(ctx, func(ctx context.Context) error {
			_, err := a.client.MemberAddAsLearner(ctx, peerURLs)
			if errors.Is(err, rpctypes.ErrPeerURLExist) {
				return nil // an earlier try was carried out, though its answer was lost
			}
			return err
		})
		if err != nil {
			return "", fmt.Errorf("add %s: %w", name, err)
		}
	}
	list, err := a.list(ctx, settleTime)
	if err != nil {
		return "", err
	}
	var all []string
	for _, m := range list.Members {
		if samePeers(m.PeerURLs, peerURLs) {
			m.Name = name
		}
		for _, u := range m.PeerURLs {
			all = append(all, m.Name+"="+u)
		}
	}
	return strings.Join(all, ","), nil
}

// takeOut removes a member that is dead; one that is not there was taken out before.
func (a *Admin) takeOut(ctx context.Context, c Cluster, name string) (Cluster, error) {
	m, err := c.named(name)
	if errors.Is(err, datastore.ErrNotFound) {
		return c, nil
	}
	if err == nil && m.Err == "" {
		err = refused("%s is alive, and cannot be replaced; to take it out: `twill etcd leave %s`", name, name)
	}
	if err == nil {
		err = a.remove(ctx, c, m)
	}
	if err != nil {
		return c, err
	}
	return a.Status(ctx)
}

// mayJoin returns why a member may not be added now, or whether it was added before.
func (c Cluster) mayJoin(name string, peerURLs []string) (added bool, err error) {
	if c.MayFail < 0 {
		return false, c.powerless()
	}
	for _, m := range c.Members {
		self := samePeers(m.PeerURLs, peerURLs)
		switch {
		case self && m.Name == "":
			added = true
		case self:
			return false, refused("%s, which is reached at %s, has run before, and its data is not here; if it is lost: --replace %s", m.Name, strings.Join(peerURLs, ","), m.Name)
		case m.Name == name:
			return false, refused("there is a member %s already, which is reached at %s; give another --name", name, strings.Join(m.PeerURLs, ","))
		case slices.ContainsFunc(m.PeerURLs, isLocal):
			return false, refused("%s is alone and cannot be reached by others; start it again with --listen-peer first", m.Called())
		case m.Learner:
			return false, refused("%s is joining; one after the other", m.Called())
		case m.Err != "":
			return false, refused("%s: %s; start it, or put this one in its place: --replace %s", m.Called(), m.Err, m.Called())
		}
	}
	return added, nil
}

func (c Cluster) powerless() error {
	return refused("%d of %d voting members answer, which is no majority: nothing can be changed", c.Healthy, c.Voters)
}

// isLocal reports whether a peer URL is the name of a member that listens for none.
func isLocal(peer string) bool {
	u, err := url.Parse(peer)
	return err == nil && u.Hostname() == "localhost"
}

func samePeers(a, b []string) bool {
	return slices.Equal(slices.Sorted(slices.Values(a)), slices.Sorted(slices.Values(b)))
}

// named is a member by its name, or its ID.
func (c Cluster) named(name string) (Member, error) {
	var found []Member
	for _, m := range c.Members {
		if m.Name == name || m.ID == name {
			found = append(found, m)
		}
	}
	switch len(found) {
	case 0:
		return Member{}, fmt.Errorf("member %s: %w; `twill etcd status -o wide` shows names and IDs", name, datastore.ErrNotFound)
	case 1:
		return found[0], nil
	}
	return Member{}, refused("%d members are called %s: name one by its ID, as `twill etcd status -o wide` shows it", len(found), name)
}

// Promote has a member that runs, and is reached at its peer URLs, vote, once it has what the others have. It ends when that is so, at once if it was before, or
// with an error when ctx ends, or the member was taken out. What fails meanwhile is tried again.
func (a *Admin) Promote(ctx context.Context, peerURLs []string) error {
	for {
		bounded, cancel := context.WithTimeout(ctx, answerTime)
		voting, err := a.promote(bounded, peerURLs)
		cancel()
		if voting || errors.Is(err, datastore.ErrNotFound) || errors.Is(err, datastore.ErrUnauthorized) {
			return err
		}
		if err := pause(ctx); err != nil {
			return err
		}
	}
}

// promote tries it once, and reports whether the member votes.
func (a *Admin) promote(ctx context.Context, peerURLs []string) (voting bool, err error) {
	list, err := a.client.MemberList(ctx)
	if err != nil {
		return false, etcdstore.Explain(ctx, err)
	}
	i := slices.IndexFunc(list.Members, func(m *pb.Member) bool { return samePeers(m.PeerURLs, peerURLs) })
	if i < 0 {
		return false, fmt.Errorf("member at %s: %w: it was taken out of the cluster", strings.Join(peerURLs, ","), datastore.ErrNotFound)
	}
	if !list.Members[i].IsLearner {
		return true, nil
	}
	_, err = a.client.MemberPromote(ctx, list.Members[i].ID)
	return err == nil, etcdstore.Explain(ctx, err)
}

// Leave takes a member out of the cluster, dead or alive, by its name or ID; one that runs ends. It is refused if those that are left would be no majority, or if
// it is the last.
func (a *Admin) Leave(ctx context.Context, name string) error {
	c, err := a.Status(ctx)
	if err != nil {
		return err
	}
	m, err := c.named(name)
	if err != nil {
		return err
	}
	return a.remove(ctx, c, m)
}

func (a *Admin) remove(ctx context.Context, c Cluster, m Member) error {
	if err := c.mayRemove(m); err != nil {
		return err
	}
	err := a.whileUnsettled(ctx, func(ctx context.Context) error {
		_, err := a.client.MemberRemove(ctx, m.id)
		if errors.Is(err, rpctypes.ErrMemberNotFound) {
			return nil // an earlier try was carried out, though its answer was lost
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("take %s out: %w", m.Called(), err)
	}
	return nil
}

// mayRemove returns why a member must stay.
func (c Cluster) mayRemove(m Member) error {
	if c.MayFail < 0 {
		return c.powerless()
	}
	if m.Learner {
		return nil
	}
	voters, healthy := c.Voters-1, c.Healthy
	if m.Err == "" {
		healthy--
	}
	switch {
	case voters == 0:
		return refused("%s is the last member that votes, and has all the data", m.Called())
	case healthy < voters/2+1:
		return refused("of the %d members that would be left %d would answer, which is no majority; start or replace the others first", voters, healthy)
	}
	return nil
}

// changeTime is how long a change of membership may take before it counts as lost: with a leader that goes, it is, and nobody says so.
const changeTime = 5 * time.Second

// whileUnsettled tries again for as long as a cluster may take to be healthy: members must have been connected for some seconds, and one that is taken out may be the
// one that was asked.
func (a *Admin) whileUnsettled(ctx context.Context, do func(context.Context) error) error {
	patience, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		bounded, end := context.WithTimeout(ctx, changeTime)
		cause := do(bounded)
		end()
		err := etcdstore.Explain(ctx, cause)
		passes := errors.Is(err, datastore.ErrUnavailable) || errors.Is(cause, rpctypes.ErrMemberNotEnoughStarted)
		if !passes || pause(patience) != nil {
			return err
		}
	}
}

// pause waits between two tries; it is an error if ctx ends.
func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(200 * time.Millisecond):
		return nil
	}
}
