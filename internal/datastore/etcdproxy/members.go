package etcdproxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
)

const (
	answerTime = 2 * time.Second // a member that takes longer does not answer
	retryTime  = time.Second     // between attempts while none answers
	checkEvery = 20              // rounds: how often members are asked who they are although nothing changed
)

// members is which members the proxy uses. Only follow changes it.
type members struct {
	given   []string          // endpoints, of the configuration, SRV records or the file
	secure  bool              // those of them that do not say so are asked by TLS
	cluster uint64            // its id; zero: not known yet
	known   map[string]uint64 // endpoint → the member that answered there, and is in use
	listed  map[uint64]bool   // ids of the members, as the cluster has them; nil: it did not say
	asked   []string          // candidates of the last round, if all of them answered, and nothing is to be found out about them
	rounds  int
	// Of the last round: somebody did not answer, or cannot be used yet; and nobody answered.
	unsettled, silent bool
	logged            string // what was last wrong
}

// answer is what an endpoint said of the member behind it.
type answer struct {
	endpoint string
	status   *clientv3.StatusResponse
	err      error
}

// follow keeps to the members of the cluster until ctx ends. The error says that it can never succeed.
func (p *Proxy) follow(ctx context.Context) error {
	for {
		begins := !p.serves()
		err := p.round(ctx)
		p.mu.Lock()
		p.rounds++
		p.mu.Unlock()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, errSettings) || errors.Is(err, datastore.ErrUnauthorized) {
			return err
		}
		p.warn(err)
		wait := p.cfg.Follow
		if !p.serves() {
			wait = min(wait, retryTime)
		} else if begins {
			continue // with those that the cluster has
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(wait):
		}
	}
}

// warn logs what is wrong, once.
func (p *Proxy) warn(err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != "" && text != p.members.logged {
		p.cfg.Log.Warn("members of etcd", "err", text)
	}
	p.members.logged = text
}

// errSettings is that of settings which no waiting makes right.
var errSettings = errors.New("settings")

// round finds out which members there are and uses those. On an error, those that were in use stay.
func (p *Proxy) round(ctx context.Context) error {
	m := &p.members
	err := p.endpoints(ctx)
	if p.own == nil {
		if err != nil {
			p.unready(err)
			return err
		}
		if err := p.connect(ctx); err != nil {
			p.unready(err)
			return err
		}
	}
	bounded, cancel := context.WithTimeout(ctx, 2*answerTime)
	defer cancel()
	candidates, listErr := m.given, error(nil)
	if p.serves() {
		var list *clientv3.MemberListResponse
		if list, listErr = p.own.MemberList(bounded); listErr == nil {
			candidates = m.candidates(list)
		} else {
			m.listed = nil
			candidates = slices.Concat(m.given, slices.Sorted(maps.Keys(m.known)))
		}
	}
	candidates = distinct(candidates)
	if m.settled(candidates) && listErr == nil {
		return err
	}
	use, useErr := p.choose(p.askAll(ctx, candidates))
	if m.asked = candidates; m.unsettled {
		m.asked = nil
	}
	p.mute(m.silent)
	if len(use) == 0 {
		if useErr = errors.Join(useErr, listErr); len(m.known) == 0 {
			p.unready(useErr)
		}
		return errors.Join(err, useErr)
	}
	p.use(use)
	return errors.Join(err, useErr)
}

// settled reports whether the candidates are those of the last round, and all of them answered, so that a round has nothing to ask; now and then it asks all the same.
func (m *members) settled(candidates []string) bool {
	if m.rounds++; m.rounds%checkEvery == 0 || len(m.known) == 0 {
		return false
	}
	return slices.Equal(candidates, m.asked)
}

// endpoints reads the file, or asks for the SRV records while nobody answers. What was known stays if that fails.
func (p *Proxy) endpoints(ctx context.Context) error {
	m := &p.members
	switch {
	case p.cfg.EndpointsFile != "":
		given, err := readEndpoints(p.cfg.EndpointsFile)
		if err != nil {
			return err
		}
		m.given = given
	case len(m.given) > 0 && p.serves() && !m.silent:
	default:
		cfg, err := etcdstore.ClientConfig(ctx, p.cfg.Store)
		if err != nil {
			return asSettings(err)
		}
		m.given = cfg.Endpoints
	}
	return nil
}

// readEndpoints reads a file of endpoints, separated by commas, spaces or line ends; # begins a comment.
func readEndpoints(file string) (out []string, err error) {
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("endpoints of etcd: %w", err)
	}
	for line := range strings.Lines(string(b)) {
		line, _, _ = strings.Cut(line, "#")
		out = append(out, strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(", \t\r\n", r) })...)
	}
	for _, e := range out {
		if scheme(e) == "" {
			return nil, fmt.Errorf("endpoints of etcd: %s: %q: want http://HOST:PORT, https://HOST:PORT or unix://PATH", file, e)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("endpoints of etcd: %s has none", file)
	}
	return out, nil
}

func scheme(endpoint string) string {
	for _, s := range []string{"http", "https", "unix"} {
		if rest, ok := strings.CutPrefix(endpoint, s+"://"); ok && rest != "" {
			return s
		}
	}
	return ""
}

// asSettings marks an error that is not of a cluster, or a name server, which is away.
func asSettings(err error) error {
	if errors.Is(err, datastore.ErrUnavailable) {
		return err
	}
	return fmt.Errorf("%w: %w", errSettings, err)
}

// connect makes the connections.
func (p *Proxy) connect(ctx context.Context) error {
	store := p.cfg.Store
	store.Endpoints, store.DiscoverySRV = p.members.given, ""
	open := func() (*clientv3.Client, error) {
		cfg, err := etcdstore.ClientConfig(ctx, store)
		if err != nil {
			return nil, asSettings(err)
		}
		p.members.secure = cfg.TLS != nil
		c, err := clientv3.New(cfg)
		if err != nil {
			return nil, etcdstore.Explain(ctx, err)
		}
		return c, nil
	}
	own, err := open()
	if err != nil {
		return err
	}
	bare := own
	if store.Username != "" {
		store.Username, store.Password = "", ""
		if bare, err = open(); err != nil {
			_ = own.Close() // of no use alone
			return err
		}
	}
	p.mu.Lock()
	p.own, p.bare = own, bare
	p.mu.Unlock()
	return nil
}

// serves reports whether there is, or was, a member to ask.
func (p *Proxy) serves() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.notReady == ""
}

// mute notes whether nobody answers at present. Requests are passed on all the same: gRPC tries again more often than the proxy asks.
func (p *Proxy) mute(silent bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = silent
}

// candidates are the endpoints that may be those of members: what was given, and what the members say of themselves. Of the latter only those with the scheme
// of the former, so that nobody has us speak without TLS who could not before; and none of a member that only learns, which serves nobody.
func (m *members) candidates(list *clientv3.MemberListResponse) []string {
	out := slices.Clone(m.given)
	like := scheme(m.given[0])
	switch {
	case like == "" && m.secure: // HOST:PORT
		like = "https"
	case like == "":
		like = "http"
	}
	m.listed = map[uint64]bool{}
	for _, member := range list.Members {
		m.listed[member.ID] = true
		for _, url := range member.ClientURLs {
			if !member.IsLearner && scheme(url) == like {
				out = append(out, url)
			}
		}
	}
	return out
}

func distinct(endpoints []string) []string {
	return slices.Compact(slices.Sorted(slices.Values(endpoints)))
}

func (p *Proxy) askAll(ctx context.Context, endpoints []string) []answer {
	out := make([]answer, len(endpoints))
	var wg sync.WaitGroup
	for i, endpoint := range endpoints {
		wg.Go(func() {
			bounded, cancel := context.WithTimeout(ctx, answerTime)
			defer cancel()
			out[i].endpoint = endpoint
			out[i].status, out[i].err = p.own.Status(bounded, endpoint)
		})
	}
	wg.Wait()
	return out
}

// choose picks the endpoints to use: one of each member that answers, and those in use that do not answer now. None of them is of another cluster.
func (p *Proxy) choose(answers []answer) (use map[string]uint64, err error) {
	m := &p.members
	if err := p.sameCluster(answers); err != nil {
		return nil, err
	}
	use = map[string]uint64{}
	m.unsettled, m.silent = false, true
	led := slices.ContainsFunc(answers, func(a answer) bool { return a.err == nil && a.status.Leader != 0 })
	last := func(a answer) int { // what was given comes first: it is how this host reaches a member
		if slices.Contains(m.given, a.endpoint) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(answers, func(a, b answer) int { return last(a) - last(b) })
	seen := map[uint64]bool{}
	var silent []error
	for _, a := range answers {
		if a.err != nil {
			silent, m.unsettled = append(silent, fmt.Errorf("%s: %w", a.endpoint, a.err)), true
			if id, ok := m.known[a.endpoint]; ok && !seen[id] {
				use[a.endpoint] = id
			}
			continue
		}
		switch id := a.status.Header.MemberId; {
		case a.status.Header.ClusterId != m.cluster:
			err = errors.Join(err, fmt.Errorf("%s is a member of another cluster (%x), and not used", a.endpoint, a.status.Header.ClusterId))
		case seen[id] || m.listed != nil && !m.listed[id]: // it is there already, or taken out of the cluster
		case a.status.IsLearner, a.status.Leader == 0 && led: // it serves nobody
			m.unsettled = true
		default:
			m.silent, seen[id], use[a.endpoint] = false, true, id
			p.note(a.status)
		}
	}
	if len(use) == 0 {
		err = errors.Join(append([]error{err}, silent...)...)
	}
	return use, err
}

// sameCluster notes which cluster it is. Where those that answer are all of another one than before, that has taken its place.
func (p *Proxy) sameCluster(answers []answer) error {
	m := &p.members
	clusters := map[uint64]string{}
	for _, a := range answers {
		if a.err == nil {
			clusters[a.status.Header.ClusterId] = a.endpoint
		}
	}
	cluster, err := m.oneOf(clusters)
	if err == nil && cluster != m.cluster {
		if m.cluster != 0 {
			p.cfg.Log.Warn("the members of etcd are another cluster now", "was", fmt.Sprintf("%x", m.cluster), "is", fmt.Sprintf("%x", cluster))
		}
		m.cluster, m.known, m.listed = cluster, map[string]uint64{}, nil
	}
	return err
}

// oneOf is the cluster of those that answered: the one that is in use, if it is among them.
func (m *members) oneOf(clusters map[uint64]string) (uint64, error) {
	if _, ok := clusters[m.cluster]; ok || len(clusters) == 0 {
		return m.cluster, nil
	}
	if len(clusters) > 1 {
		return 0, fmt.Errorf("the endpoints are those of different clusters: %s", strings.Join(slices.Sorted(maps.Values(clusters)), ", "))
	}
	for id := range clusters {
		return id, nil
	}
	return 0, nil
}

// use has requests go to these members from now on.
func (p *Proxy) use(endpoints map[string]uint64) {
	m := &p.members
	p.mu.Lock()
	maps.DeleteFunc(p.versions, func(id uint64, _ string) bool { return !slices.Contains(slices.Collect(maps.Values(endpoints)), id) })
	p.mu.Unlock()
	if maps.Equal(m.known, endpoints) && p.serves() {
		return
	}
	m.known = endpoints
	list := slices.Sorted(maps.Keys(endpoints))
	p.own.SetEndpoints(list...)
	p.bare.SetEndpoints(list...)
	p.mu.Lock()
	p.notReady = ""
	p.mu.Unlock()
	p.cfg.Log.Info("members of etcd in use", "endpoints", list)
}

func (p *Proxy) unready(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.notReady = err.Error()
}

// note remembers the version of a member.
func (p *Proxy) note(s *clientv3.StatusResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.versions[s.Header.MemberId] = (*pb.StatusResponse)(s).Version
}
