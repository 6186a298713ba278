package member

import (
	"context"
	"log/slog"
	"time"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// mayLag is by how many committed entries the applied ones may be behind before etcd refuses what it is asked as "too many requests"
// (maxGapBetweenApplyAndCommitIndex of its package etcdserver).
const mayLag = 5000

// abreast keeps a member of several from taking itself for one that lags behind for ever: what came to it as a snapshot is counted as applied only with the next
// entry (EtcdServer.applySnapshot sets the committed index alone). Where nobody writes none comes, and the member itself may not ask for one: one that joins is
// never ready, and one that was cut off refuses its clients. A change of membership may be asked for all the same, so it says once more how it is reached.
func (m *Member) abreast(log *slog.Logger) {
	server := m.etcd.Server
	look := time.NewTicker(time.Second)
	defer look.Stop()
	for before := server.AppliedIndex(); ; {
		select {
		case <-look.C:
		case <-server.StopNotify():
			return
		}
		applied := server.AppliedIndex()
		stands := applied == before && server.CommittedIndex() > applied+mayLag
		before = applied
		self := server.Cluster().Member(server.MemberID())
		if !stands || self == nil {
			continue
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		_, err := server.UpdateMember(ctx, membership.Member{ID: self.ID, RaftAttributes: membership.RaftAttributes{PeerURLs: self.PeerURLs}})
		cancel()
		if err != nil {
			log.Warn("etcd counts nothing of a snapshot as applied until something is written", "err", err)
		}
	}
}
