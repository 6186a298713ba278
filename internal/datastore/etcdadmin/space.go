package etcdadmin

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
)

// fullShare is how much of its quota a member may have used up, in percent, for an alarm of its to be disarmed: with more the next
// writes would raise it again.
const fullShare = 95

// settleTime is how long a cluster may take to be healthy again after a member was defragmented.
const settleTime = 30 * time.Second

// ErrRefused is what would do harm, or not help; the error says what to do first.
var ErrRefused = errors.New("refused")

// Freed is a member that was defragmented: what its database took of the disk before and after, in bytes.
type Freed struct {
	Member string `json:"member"`
	Before int64  `json:"before"`
	After  int64  `json:"after"`
}

// Defragment gives back to the disk what members' databases do not use, one member after the other, and the leader last. A member
// does not answer while it is being defragmented: it is refused, before the first or between two, unless every member is healthy. Compact: the
// history up to now is forgotten first, which is what leaves space unused; who watches from an older revision lists again.
// Each is called before a member's turn. What was freed is returned with an error, too.
func (a *Admin) Defragment(ctx context.Context, compact bool, each func(member string)) ([]Freed, error) {
	c, err := a.allHealthy(ctx)
	if err != nil {
		return nil, err
	}
	var forgotten int64
	if compact {
		if forgotten, err = a.compact(ctx); err != nil {
			return nil, err
		}
	}
	var freed []Freed
	for i, turn := range leaderLast(c.Members) {
		if i > 0 {
			if c, err = a.settled(ctx); err != nil {
				return freed, err
			}
		}
		m, ok := c.member(turn)
		if !ok {
			return freed, fmt.Errorf("%w: member %s has left the cluster meanwhile", ErrRefused, hex(turn))
		}
		each(m.Called())
		if compact {
			if err := a.compacted(ctx, m, forgotten); err != nil {
				return freed, err
			}
		}
		if _, err := a.client.Defragment(ctx, m.Endpoint); err != nil {
			return freed, fmt.Errorf("defragment %s: %w", m.Called(), etcdstore.Explain(ctx, err))
		}
		after, err := a.client.Status(ctx, m.Endpoint)
		if err != nil {
			return freed, fmt.Errorf("%s after it was defragmented: %w", m.Called(), etcdstore.Explain(ctx, err))
		}
		freed = append(freed, Freed{m.Called(), m.Size, after.DbSize})
	}
	return freed, nil
}

// settled is allHealthy after a member was away for a while: the cluster may need another leader first.
func (a *Admin) settled(ctx context.Context) (Cluster, error) {
	patience, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		c, err := a.allHealthy(ctx)
		if err == nil || patience.Err() != nil {
			return c, err
		}
		_ = pause(patience) // at its end there is one more look
	}
}

// allHealthy is the cluster, or an error that says which member is not healthy.
func (a *Admin) allHealthy(ctx context.Context) (Cluster, error) {
	c, err := a.Status(ctx)
	if err != nil {
		return c, err
	}
	for _, m := range c.Members {
		switch {
		case m.Err != "":
			return c, fmt.Errorf("%w: %s: %s. While a member is defragmented it does not answer, so all others must", ErrRefused, m.Called(), m.Err)
		case slices.Contains(m.Alarms, pb.AlarmType_CORRUPT.String()):
			return c, corrupt(m)
		}
	}
	return c, nil
}

func corrupt(m Member) error {
	return fmt.Errorf("%w: %s has other data than the members it should equal: take it away and add it again with an empty directory", ErrRefused, m.Called())
}

func (c Cluster) member(id uint64) (Member, bool) {
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.id == id })
	if i < 0 {
		return Member{}, false
	}
	return c.Members[i], true
}

// leaderLast are the members' ids, that of the leader at the end.
func leaderLast(ms []Member) (ids []uint64) {
	ms = slices.Clone(ms)
	slices.SortStableFunc(ms, func(x, y Member) int {
		switch {
		case x.Leader == y.Leader:
			return 0
		case x.Leader:
			return 1
		}
		return -1
	})
	for _, m := range ms {
		ids = append(ids, m.id)
	}
	return ids
}

// compact forgets the history up to now, which it returns. One member has then deleted it.
func (a *Admin) compact(ctx context.Context) (revision int64, err error) {
	now, err := a.client.Get(ctx, api.Root, clientv3.WithCountOnly())
	if err != nil {
		return 0, fmt.Errorf("compact: %w", etcdstore.Explain(ctx, err))
	}
	return now.Header.Revision, compactBy(ctx, a.client, now.Header.Revision)
}

// compacted returns once a member has deleted the history up to a revision, too. Each does so by itself, after the cluster has decided it; one that is
// asked to compact what is compacted already answers when it has (etcd, server/storage/mvcc, updateCompactRev).
func (a *Admin) compacted(ctx context.Context, m Member, revision int64) error {
	cfg := a.cfg
	cfg.Endpoints, cfg.DiscoverySRV = []string{m.Endpoint}, ""
	client, err := etcdstore.Dial(ctx, cfg)
	if err != nil {
		return fmt.Errorf("compact %s: %w", m.Called(), err)
	}
	defer client.Close()
	if err := compactBy(ctx, client, revision); err != nil {
		return fmt.Errorf("%s: %w", m.Called(), err)
	}
	return nil
}

func compactBy(ctx context.Context, client *clientv3.Client, revision int64) error {
	_, err := client.Compact(ctx, revision, clientv3.WithCompactPhysical())
	if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // by somebody else, or before
		return fmt.Errorf("compact: %w", etcdstore.Explain(ctx, err))
	}
	return nil
}

// Alarm is an alarm of a member.
type Alarm struct {
	Member string `json:"member"`
	Alarm  string `json:"alarm"`
}

// Alarms are those that members have raised. Without a majority it is an error, since nobody knows.
func (a *Admin) Alarms(ctx context.Context) ([]Alarm, error) {
	c, err := a.alarmed(ctx)
	return c.alarms(), err
}

func (a *Admin) alarmed(ctx context.Context) (Cluster, error) {
	c, err := a.Status(ctx)
	if err == nil && c.AlarmsUnknown != "" {
		err = fmt.Errorf("which alarms there are is not known: %s", c.AlarmsUnknown)
	}
	return c, err
}

func (c Cluster) alarms() (out []Alarm) {
	for _, m := range c.Members {
		for _, alarm := range m.Alarms {
			out = append(out, Alarm{m.Called(), alarm})
		}
	}
	return out
}

// Disarm ends the alarm of members whose quota was used up, so that the cluster takes writes again, and returns which it ended. It is
// refused while such a member still has no space, and for an alarm that says something else. Then none is ended.
func (a *Admin) Disarm(ctx context.Context) ([]Alarm, error) {
	c, err := a.alarmed(ctx)
	if err != nil {
		return nil, err
	}
	var refused []error
	for _, m := range c.Members {
		for _, alarm := range m.Alarms {
			refused = append(refused, mayDisarm(m, alarm))
		}
	}
	if err := errors.Join(refused...); err != nil {
		return nil, err
	}
	var done []Alarm
	for _, m := range c.Members {
		for _, alarm := range m.Alarms {
			if _, err := a.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: m.id, Alarm: pb.AlarmType_NOSPACE}); err != nil {
				return done, fmt.Errorf("disarm %s: %w", m.Called(), etcdstore.Explain(ctx, err))
			}
			done = append(done, Alarm{m.Called(), alarm})
		}
	}
	return done, nil
}

// mayDisarm returns why an alarm of a member must stay.
func mayDisarm(m Member, alarm string) error {
	switch {
	case alarm == pb.AlarmType_CORRUPT.String():
		return corrupt(m)
	case alarm != pb.AlarmType_NOSPACE.String():
		return fmt.Errorf("%w: %s has the alarm %s, which this version does not know", ErrRefused, m.Called(), alarm)
	case m.Err != "":
		return fmt.Errorf("%w: %s: %s; so nobody knows whether it has space", ErrRefused, m.Called(), m.Err)
	case m.Share() < fullShare:
		return nil
	}
	what := []string{fmt.Sprintf("%s has used up %d%% of its quota", m.Called(), m.Share())}
	if m.InUse*100/m.Quota < fullShare {
		what = append(what, "defragment first: `twill etcd defrag`")
	} else {
		what = append(what, "and all of it is in use: compact and defragment first, `twill etcd defrag --compact`; if that frees nothing, start each member with a larger --quota")
	}
	return fmt.Errorf("%w: %s", ErrRefused, strings.Join(what, "; "))
}
