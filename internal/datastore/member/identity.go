package member

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"

	"go.etcd.io/etcd/server/v3/etcdserver/api/membership"
)

// Identity is who a member is in its cluster: what a data directory must say for [Start] to take it, for who makes one from a backup.
type Identity struct {
	Dir      string   // of the data, which is below that of the configuration
	Name     string   // of the member
	PeerURLs []string // how the others reach it
	Cluster  string   // all members as NAME=PEER-URL,NAME=PEER-URL
	Token    string   // by which members of different clusters are told apart
}

// Identity is who a member with this configuration is. What it listens on for clients is of no account.
func (c Config) Identity() (Identity, error) {
	c.ListenClient, c.Logger = []string{"unix://none"}, slog.New(slog.DiscardHandler)
	s, err := c.server()
	if err != nil {
		return Identity{}, err
	}
	id := Identity{Dir: s.Dir, Name: s.Name, Cluster: s.InitialCluster, Token: s.InitialClusterToken}
	for _, u := range s.AdvertisePeerUrls {
		id.PeerURLs = append(id.PeerURLs, u.String())
	}
	return id, nil
}

// HasData reports whether a member with this configuration has run before, and will be who it was.
func (c Config) HasData() (bool, error) {
	id, err := c.Identity()
	if err != nil {
		return false, err
	}
	logs, err := os.ReadDir(filepath.Join(id.Dir, "member", "wal"))
	if err != nil && !os.IsNotExist(err) {
		return false, err
	}
	return len(logs) > 0, nil
}

// announce corrects how others reach this member, if it was alone until now and is started for peers, or elsewhere: nobody else knows the old way. If there are others,
// they count on the old way, and a warning says so.
func (m *Member) announce(ctx context.Context, cfg Config) {
	server := m.etcd.Server
	self := server.Cluster().Member(server.MemberID())
	if len(cfg.ListenPeer) == 0 || self == nil {
		return
	}
	var urls []string
	peers := m.etcd.Config().AdvertisePeerUrls
	for _, u := range peers {
		urls = append(urls, u.String())
	}
	if slices.Equal(slices.Sorted(slices.Values(urls)), slices.Sorted(slices.Values(self.PeerURLs))) {
		return
	}
	if others := len(server.Cluster().Members()) - 1; others > 0 {
		cfg.Logger.Warn("the other members of etcd reach this one elsewhere than it listens", "others", others, "at", self.PeerURLs, "listens", urls)
		return
	}
	corrected := membership.Member{ID: self.ID, RaftAttributes: membership.RaftAttributes{PeerURLs: urls}, Attributes: self.Attributes}
	if _, err := server.UpdateMember(ctx, corrected); err != nil {
		cfg.Logger.Warn("the way for other members of etcd to this one cannot be corrected, so none can join", "listens", urls, "err", err)
	}
}
