package etcdproxy_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdproxy"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/member/certs"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// follow is how often proxies of tests ask who the members are.
const follow = 100 * time.Millisecond

// startCluster starts three members that have each other.
func startCluster(t *testing.T) []*member.Member {
	t.Helper()
	var all, peers []string
	for i := range 3 {
		peers = append(peers, "http://"+machinetest.Address(t))
		all = append(all, fmt.Sprintf("m%d=%s", i, peers[i]))
	}
	members := make([]*member.Member, 3)
	errs := make(chan error)
	for i := range members {
		cfg := member.Config{
			Dir: t.TempDir(), Name: fmt.Sprint("m", i), Cluster: strings.Join(all, ","),
			ListenPeer: peers[i : i+1], ListenClient: []string{"http://" + machinetest.Address(t)},
		}
		go func() {
			var err error
			members[i], err = member.Start(t.Context(), cfg) // each waits for the others
			errs <- err
		}()
	}
	for range members {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	for _, m := range members {
		t.Cleanup(m.Close)
	}
	return members
}

// answered are the members that answer a few reads.
func answered(t testing.TB, c *clientv3.Client) map[uint64]bool {
	t.Helper()
	out := map[uint64]bool{}
	for range 12 {
		got, err := c.Get(t.Context(), "/k")
		if err != nil {
			t.Fatal(err)
		}
		out[got.Header.MemberId] = true
	}
	return out
}

// TestMembersAreFollowed: the proxy was given one of three members, and reads are spread over all. One that is taken out is not asked
// any more; the one that was given may go, too.
func TestMembersAreFollowed(t *testing.T) {
	members := startCluster(t)
	p := startProxy(t, etcdproxy.Config{Store: to(members[0].Endpoints()...), Follow: follow})
	c := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}})
	await(t, "reads to be spread over three members", func() bool { return len(answered(t, c)) == 3 })

	list, err := c.MemberList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range list.Members {
		if m.Name == "m2" {
			await(t, "the member to be taken out", func() bool { // which is refused while they hardly know each other, or lost with a leader
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				_, err := c.MemberRemove(ctx, m.ID)
				return err == nil || errors.Is(err, rpctypes.ErrMemberNotFound)
			})
		}
	}
	members[2].Close()
	await(t, "reads to be spread over two members", func() bool { return len(answered(t, c)) == 2 })
}

// TestALostMajorityIsNoticed: the member that is left answers, but knows nothing new. A watch behind the proxy must not take that for calm.
func TestALostMajorityIsNoticed(t *testing.T) {
	members := startCluster(t)
	p := startProxy(t, etcdproxy.Config{Store: to(members[0].Endpoints()...), Follow: follow})
	c := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}})
	var rev int64
	await(t, "the cluster to take a write", func() bool { // which is lost with a leader
		r, err := c.Put(t.Context(), "/k/a", "1")
		if err == nil {
			rev = r.Header.Revision
		}
		return err == nil
	})
	watch := func(cfg datastore.Config, after int64) (w datastore.Watcher) {
		s := open(t, cfg)
		await(t, "a watch to begin", func() bool {
			var err error
			if w, err = s.Watch(t.Context(), "/k/", datastore.PositionOf(fmt.Sprint(after))); err != nil && !errors.Is(err, datastore.ErrUnavailable) {
				t.Fatal(err)
			}
			return err == nil
		})
		t.Cleanup(w.Close)
		return w
	}
	next(t, watch(to(p.endpoint), rev-1), rev)
	w := watch(datastore.Config{Endpoints: []string{p.endpoint}, Progress: 400 * time.Millisecond, RequestTimeout: 3 * time.Second}, rev)
	members[1].Close()
	members[2].Close()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		if _, err := w.Next(ctx); err != nil {
			if !errors.Is(err, datastore.ErrUnavailable) || ctx.Err() != nil {
				t.Errorf("got %v", err)
			}
			return
		}
	}
}

// TestAnotherClusterIsNeverAsked: by no endpoint that was given, and by none that a file names later.
func TestAnotherClusterIsNeverAsked(t *testing.T) {
	one, other := startMember(t, member.Config{Name: "one"}), startMember(t, member.Config{Name: "other", ListenPeer: []string{"http://" + machinetest.Address(t)}})
	var both *proxy
	served := 0
	await(t, "the proxy to refuse two clusters", func() bool {
		if both == nil {
			both = runProxy(t, etcdproxy.Config{Store: to(one.Endpoints()[0], other.Endpoints()[0]), Follow: follow})
		}
		why := both.NotReady()
		if len(why) == 0 { // only one of them answered within the time that it waits
			if served++; served > 20 {
				t.Fatal("it takes one of two clusters for its own, again and again")
			}
			_ = both.stop()
			both = nil
			return false
		}
		return len(why) == 1 && strings.Contains(why[0], "different clusters")
	})
	if err := open(t, datastore.Config{Endpoints: []string{both.endpoint}, RequestTimeout: 300 * time.Millisecond}).Ping(t.Context()); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("it serves: %v", err)
	}

	file := filepath.Join(t.TempDir(), "endpoints")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("# the cluster\n" + one.Endpoints()[0] + "\n")
	p := startProxy(t, etcdproxy.Config{EndpointsFile: file, Follow: follow})
	c := etcd(t, clientv3.Config{Endpoints: []string{p.endpoint}})
	is := answered(t, c)
	for _, text := range []string{one.Endpoints()[0] + ", " + other.Endpoints()[0], "nonsense", ""} {
		write(text)
		rounds := p.Rounds()
		await(t, "the file to be read", func() bool { return p.Rounds() > rounds+2 })
		if got := answered(t, c); len(got) != 1 || !is[first(got)] {
			t.Errorf("with %q in the file: %v answer, want %v", text, got, is)
		}
	}
}

func first(of map[uint64]bool) uint64 {
	for id := range of {
		return id
	}
	return 0
}

// TestRightsAreTheProxysOrTheClients: those of the proxy's certificate, or of its user, and of a client that logs in those of its own user.
func TestRightsAreTheProxysOrTheClients(t *testing.T) {
	pki := t.TempDir()
	if _, err := certs.Make(certs.Config{Dir: pki, Members: []certs.Host{{Name: "m", Names: []string{"127.0.0.1"}}}, Clients: []string{"agent", "nobody"}}); err != nil {
		t.Fatal(err)
	}
	in := func(names ...string) string { return filepath.Join(append([]string{pki}, names...)...) }
	path := "unix://" + socket(t)
	m := startMember(t, member.Config{
		ListenClient: []string{"https://" + machinetest.Address(t), path},
		CertFile:     in("m", "server.crt"), KeyFile: in("m", "server.key"), ClientCAFile: in("m", "ca.crt"),
	})
	users(t, etcd(t, clientv3.Config{Endpoints: []string{path}}), map[string]string{"agent": "/mine/", "other": "/theirs/"})
	upward := func(cert string) datastore.Config {
		return datastore.Config{
			Endpoints: m.Endpoints()[:1], CAFile: in(cert, "ca.crt"), CertFile: in(cert, "client.crt"), KeyFile: in(cert, "client.key"),
		}
	}
	byPassword := upward("nobody")
	byPassword.Username, byPassword.Password, byPassword.DialTimeout = "agent", "agent's word", patience // passwords are slow to check, on purpose
	for name, store := range map[string]datastore.Config{"a certificate": upward("agent"), "a user and password": byPassword} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, etcdproxy.Config{Store: store, Follow: follow})
			agent := open(t, to(p.endpoint))
			other := open(t, datastore.Config{Endpoints: []string{p.endpoint}, Username: "other", Password: "other's word"})
			mayOnly(t, agent, "/mine/", "/theirs/")
			mayOnly(t, other, "/theirs/", "/mine/")
			if _, err := etcdstore.New(t.Context(), datastore.Config{Endpoints: []string{p.endpoint}, Username: "other", Password: "wrong", DialTimeout: patience}); !errors.Is(err, datastore.ErrUnauthorized) {
				t.Errorf("a wrong password: got %v", err)
			}
		})
	}
	wrong := byPassword
	wrong.Password = "wrong"
	if err := etcdproxy.New(etcdproxy.Config{Listen: socket(t), Store: wrong}).Run(t.Context()); !errors.Is(err, datastore.ErrUnauthorized) {
		t.Errorf("a proxy with a wrong password: got %v", err)
	}
}

// users makes etcd ask who is there: root, and users that may read and write below one prefix.
func users(t *testing.T, c *clientv3.Client, all map[string]string) {
	t.Helper()
	ctx := t.Context()
	do := func(_ any, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	do(c.UserAdd(ctx, "root", "secret"))
	do(c.UserGrantRole(ctx, "root", "root"))
	for user, prefix := range all {
		do(c.UserAdd(ctx, user, user+"'s word"))
		do(c.RoleAdd(ctx, user))
		do(c.RoleGrantPermission(ctx, user, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite)))
		do(c.UserGrantRole(ctx, user, user))
	}
	do(c.AuthEnable(ctx))
}

// mayOnly holds a store to reading, writing and watching below one prefix, and to nothing below another, also while somebody else watches there.
func mayOnly(t *testing.T, s *etcdstore.Store, mine, theirs string) {
	t.Helper()
	kv := api.Update{Key: mine + "a", Value: []byte("1")}
	got, err := s.Create(t.Context(), kv)
	if errors.Is(err, datastore.ErrExists) {
		got, err = s.Update(t.Context(), kv)
	}
	if err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(t.Context(), mine, datastore.PositionOf(fmt.Sprint(number(t, got.Revision)-1)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	next(t, w, number(t, got.Revision))
	_, create := s.Create(t.Context(), api.Update{Key: theirs + "b", Value: []byte("1")})
	_, list := s.List(t.Context(), theirs)
	_, watch := s.Watch(t.Context(), theirs, datastore.PositionOf("1"))
	for what, err := range map[string]error{"create": create, "list": list, "watch": watch} {
		if !errors.Is(err, datastore.ErrUnauthorized) {
			t.Errorf("%s below %s: got %v", what, theirs, err)
		}
	}
}
