package member

import "log/slog"

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
