// Package etcdadmin looks after the members of an etcd cluster: how they are, backups, space.
//
// In: how to reach the cluster. Out: what its members say, a file that holds all of it, a data directory made of such a file, members with
// less on their disks. It refuses what would lose the majority, or what would not help.
package etcdadmin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
)

// answerTime bounds how long a member is waited for before it counts as one that does not answer.
const answerTime = 2 * time.Second

// Admin speaks to a cluster. It is closed by Close.
type Admin struct {
	client *clientv3.Client
	cfg    datastore.Config
}

// Open connects to the cluster; its errors are those of a store (package datastore).
func Open(ctx context.Context, cfg datastore.Config) (*Admin, error) {
	client, err := etcdstore.Dial(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return &Admin{client, cfg}, nil
}

// Close ends the connection.
func (a *Admin) Close() { _ = a.client.Close() } // which says only that it was closed

// Cluster is what is known of a cluster.
type Cluster struct {
	ID      string   `json:"id"`
	Members []Member `json:"members"`
	// Voters are the members that count for the majority, and Healthy those of them that answer and know a leader.
	Voters  int `json:"voters"`
	Healthy int `json:"healthy"`
	// MayFail is how many of the healthy may go before there is no majority; less than zero: there is none now.
	MayFail int `json:"mayFail"`
	// AlarmsUnknown is why nobody said which alarms there are; empty: the members have all there are.
	AlarmsUnknown string `json:"alarmsUnknown,omitempty"`
}

// Member is one member, as it describes itself. Sizes are in bytes.
type Member struct {
	ID       string   `json:"id"`
	Name     string   `json:"name"` // empty: it was added, and has not started yet
	Endpoint string   `json:"endpoint"`
	PeerURLs []string `json:"peerURLs"`
	Version  string   `json:"version,omitempty"`
	Leader   bool     `json:"leader"`
	Learner  bool     `json:"learner"` // it receives all, and does not vote
	// Size is what its database takes of the disk, and what its quota counts; InUse is what of that holds data.
	Size  int64 `json:"size"`
	InUse int64 `json:"inUse"`
	Quota int64 `json:"quota,omitempty"` // zero: the member is older than etcd 3.6, and does not say
	// Behind is how many entries of the log it has yet to apply, of those that any member knows to be decided.
	Behind uint64   `json:"behind"`
	Alarms []string `json:"alarms,omitempty"`
	Err    string   `json:"error,omitempty"` // why it is not healthy

	id uint64
}

// Share is how much of its quota a member has used up, in percent; zero where it says none.
func (m Member) Share() int {
	if m.Quota <= 0 {
		return 0
	}
	return int(m.Size * 100 / m.Quota)
}

// Called is what a member is called in messages.
func (m Member) Called() string { return cmp.Or(m.Name, m.ID) }

// Problems are what is wrong with a cluster, each in words; none: it is as it should be.
func (c Cluster) Problems() (out []string) {
	for _, m := range c.Members {
		if m.Err != "" {
			out = append(out, m.Called()+": "+m.Err)
		}
		for _, a := range m.Alarms {
			out = append(out, m.Called()+" has the alarm "+a)
		}
	}
	if c.MayFail < 0 {
		out = append(out, fmt.Sprintf("there is no majority: %d of %d voting members answer, and %d are needed", c.Healthy, c.Voters, c.Voters/2+1))
	}
	if c.AlarmsUnknown != "" {
		out = append(out, "which alarms there are is not known: "+c.AlarmsUnknown)
	}
	return out
}

// answer is what an endpoint said of the member behind it.
type answer struct {
	endpoint string
	status   *clientv3.StatusResponse
	err      error
}

// list asks for the members, and waits so long for an answer. A member without a vote says nothing of members, also if it was given one a moment ago and has
// not heard of it: then it is asked again until ctx ends.
func (a *Admin) list(ctx context.Context, wait time.Duration, opts ...clientv3.OpOption) (*clientv3.MemberListResponse, error) {
	for {
		bounded, cancel := context.WithTimeout(ctx, wait)
		list, err := a.client.MemberList(bounded, opts...)
		cancel()
		if err == nil {
			return list, nil
		}
		if !errors.Is(err, rpctypes.Error(rpctypes.ErrGRPCNotSupportedForLearner)) || pause(ctx) != nil {
			return nil, fmt.Errorf("list of members: %w", etcdstore.Explain(ctx, err))
		}
	}
}

// Status asks each member how it is. A member that does not answer is no error: the cluster says so.
func (a *Admin) Status(ctx context.Context) (Cluster, error) {
	list, err := a.list(ctx, answerTime, clientv3.WithSerializable()) // any member knows, majority or none
	if err != nil {
		return Cluster{}, err
	}
	c := Cluster{ID: hex(list.Header.ClusterId)}
	answers := a.askAll(ctx, list)
	var decided uint64
	for _, got := range answers {
		if got.err == nil {
			decided = max(decided, got.status.RaftIndex)
		}
	}
	for _, m := range list.Members {
		c.Members = append(c.Members, memberOf(m, answers, decided))
	}
	slices.SortFunc(c.Members, func(x, y Member) int { return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.id, y.id)) })
	for _, m := range c.Members {
		if !m.Learner {
			c.Voters++
			if m.Err == "" {
				c.Healthy++
			}
		}
	}
	c.MayFail = c.Healthy - (c.Voters/2 + 1)
	a.addAlarms(ctx, &c)
	return c, nil
}

// askAll asks all endpoints at once: those that were given, which reach members from here, and those that members announce.
func (a *Admin) askAll(ctx context.Context, list *clientv3.MemberListResponse) []answer {
	endpoints := slices.Clone(a.client.Endpoints())
	for _, m := range list.Members {
		for _, e := range m.ClientURLs {
			if !slices.Contains(endpoints, e) {
				endpoints = append(endpoints, e)
			}
		}
	}
	answers := make([]answer, len(endpoints))
	var wg sync.WaitGroup
	for i, e := range endpoints {
		wg.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, answerTime)
			defer cancel()
			status, err := a.client.Status(bounded, e)
			if err == nil && status.Header.ClusterId != list.Header.ClusterId {
				err = errors.New("a member of another cluster answers there")
			}
			answers[i] = answer{e, status, err}
		})
	}
	wg.Wait()
	return answers
}

// memberOf is a member with what it said at the first endpoint at which it answered.
func memberOf(m *pb.Member, answers []answer, decided uint64) Member {
	out := Member{ID: hex(m.ID), id: m.ID, Name: m.Name, PeerURLs: m.PeerURLs, Learner: m.IsLearner}
	i := slices.IndexFunc(answers, func(a answer) bool { return a.err == nil && a.status.Header.MemberId == m.ID })
	if i < 0 {
		out.Endpoint = strings.Join(m.ClientURLs, ",")
		out.Err = "it was added, and has not started yet"
		if len(m.ClientURLs) > 0 {
			out.Err = "it does not answer"
			if j := slices.IndexFunc(answers, func(a answer) bool { return a.endpoint == m.ClientURLs[0] }); answers[j].err != nil {
				out.Err += ": " + answers[j].err.Error()
			}
		}
		return out
	}
	s := answers[i].status
	out.Endpoint, out.Version = answers[i].endpoint, s.Version
	out.Leader = s.Leader == m.ID
	out.Size, out.InUse, out.Quota = s.DbSize, s.DbSizeInUse, s.DbSizeQuota
	out.Behind = decided - min(decided, s.RaftAppliedIndex)
	if s.Leader == 0 {
		out.Err = "it knows no leader"
	}
	return out
}

// addAlarms says of each member which alarms it has.
func (a *Admin) addAlarms(ctx context.Context, c *Cluster) {
	if c.MayFail < 0 {
		c.AlarmsUnknown = "only a majority knows"
		return
	}
	bounded, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	list, err := a.client.AlarmList(bounded)
	if err != nil {
		c.AlarmsUnknown = etcdstore.Explain(ctx, err).Error()
		return
	}
	for _, alarm := range list.Alarms {
		for i := range c.Members {
			if c.Members[i].id == alarm.MemberID {
				c.Members[i].Alarms = append(c.Members[i].Alarms, alarm.Alarm.String())
			}
		}
	}
}

func hex(id uint64) string { return fmt.Sprintf("%x", id) }
