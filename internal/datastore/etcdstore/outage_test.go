package etcdstore_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// next reads until the watch has brought n updates.
func next(t *testing.T, w datastore.Watcher, n int) (updates []api.Update, position datastore.Position) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for len(updates) < n {
		c := must(w.Next(ctx))(t)
		updates, position = append(updates, c.Updates...), c.Position
	}
	return updates, position
}

// untilError reads until the watch fails.
func untilError(t *testing.T, w datastore.Watcher) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		if _, err := w.Next(ctx); err != nil {
			if ctx.Err() != nil {
				t.Fatal("the watch did not notice")
			}
			return err
		}
	}
}

func TestAWatchNoticesThatItsMemberIsGone(t *testing.T) {
	m := started(t)
	s := open(t, datastore.Config{Endpoints: m.Endpoints(), Progress: 300 * time.Millisecond, RequestTimeout: 3 * time.Second})
	w, err := s.Watch(t.Context(), "/", from(1))
	for until := time.Now().Add(patience); errors.Is(err, datastore.ErrUnavailable) && time.Now().Before(until); {
		w, err = s.Watch(t.Context(), "/", from(1)) // on a machine that was busy for as long as a request may take
	}
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	m.Close()
	if err := untilError(t, w); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("got %v", err)
	}
}

func TestAWatchOutlivesAQuickRestart(t *testing.T) {
	dir := t.TempDir()
	cfg := member.Config{Dir: dir, ListenClient: []string{"http://" + machinetest.Address(t)}}
	m := startMember(t, cfg)
	s := open(t, datastore.Config{Endpoints: m.Endpoints()})
	w := must(s.Watch(t.Context(), "/", from(1)))(t)
	defer w.Close()
	must(s.Create(t.Context(), api.Update{Key: "/a", Value: []byte("1")}))(t)
	m.Close()
	startMember(t, cfg)
	writeAgain(t, s, "/b")
	if got, _ := next(t, w, 2); got[0].Key != "/a" || got[1].Key != "/b" {
		t.Errorf("got %v", got)
	}
}

// writeAgain creates a key, as often as it takes for the store to be back.
func writeAgain(t *testing.T, s *etcdstore.Store, key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		_, err := s.Create(ctx, api.Update{Key: key, Value: []byte("1")})
		if err == nil || errors.Is(err, datastore.ErrExists) {
			return
		}
		if !errors.Is(err, datastore.ErrUnavailable) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

func TestAStorePutBackIsNoticed(t *testing.T) {
	addr := "http://" + machinetest.Address(t)
	m := startMember(t, member.Config{Dir: t.TempDir(), ListenClient: []string{addr}})
	s := open(t, datastore.Config{Endpoints: m.Endpoints()})
	for _, key := range []string{"/a", "/b", "/c"} {
		must(s.Create(t.Context(), api.Update{Key: key, Value: []byte("1")}))(t)
	}
	w := must(s.Watch(t.Context(), "/", from(1)))(t)
	defer w.Close()
	_, position := next(t, w, 3)
	soon := open(t, datastore.Config{Endpoints: m.Endpoints(), Progress: 400 * time.Millisecond})
	w = must(soon.Watch(t.Context(), "/", position))(t)
	defer func() { w.Close() }()
	m.Close()
	startMember(t, member.Config{Dir: t.TempDir(), ListenClient: []string{addr}}) // empty, as if from a backup
	err := untilError(t, w)
	for until := time.Now().Add(patience); errors.Is(err, datastore.ErrUnavailable) && time.Now().Before(until); { // of a watch that fails, or of one that does not begin yet
		var again datastore.Watcher
		if again, err = soon.Watch(t.Context(), "/", position); err == nil {
			w.Close()
			w = again
			err = untilError(t, w)
		}
	}
	if !errors.Is(err, datastore.ErrCompacted) {
		t.Errorf("got %v", err)
	}
}

func TestLossOfQuorum(t *testing.T) {
	machinetest.Expensive(t, "takes 15 s")
	var cfgs []member.Config
	var cluster, endpoints []string
	for i := range 3 {
		peer, client := "http://"+machinetest.Address(t), "http://"+machinetest.Address(t)
		name := fmt.Sprint("m", i)
		cluster, endpoints = append(cluster, name+"="+peer), append(endpoints, client)
		cfgs = append(cfgs, member.Config{Dir: t.TempDir(), Name: name, ListenClient: []string{client}, ListenPeer: []string{peer}})
	}
	members := startAll(t, cfgs, cluster)
	s := open(t, datastore.Config{Endpoints: endpoints[:1]})
	writeAgain(t, s, "/a")
	kv := must(s.Get(t.Context(), "/a"))(t)
	soon := open(t, datastore.Config{Endpoints: endpoints[:1], Progress: time.Second})
	w := must(soon.Watch(t.Context(), "/", from(count(t, kv.Revision))))(t)
	defer func() { w.Close() }()
	members[1].Close()
	members[2].Close()
	if err := untilError(t, w); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("watch without a quorum: got %v", err)
	}
	hasty := open(t, datastore.Config{Endpoints: endpoints[:1], RequestTimeout: 3 * time.Second})
	if _, err := hasty.List(t.Context(), "/"); !errors.Is(err, datastore.ErrUnavailable) {
		t.Errorf("list without a quorum: got %v", err)
	}
	startAll(t, cfgs[1:], cluster)
	writeAgain(t, s, "/b")
	w.Close()
	w = must(s.Watch(t.Context(), "/", from(count(t, kv.Revision))))(t)
	if got, _ := next(t, w, 1); got[0].Key != "/b" {
		t.Errorf("watch after the loss: got %v", got)
	}
}

// startAll starts members at once, since each waits for most of the others.
func startAll(t *testing.T, cfgs []member.Config, cluster []string) []*member.Member {
	t.Helper()
	type started struct {
		i   int
		m   *member.Member
		err error
	}
	ch := make(chan started)
	for i, cfg := range cfgs {
		cfg.Cluster = strings.Join(cluster, ",")
		go func() {
			m, err := member.Start(t.Context(), cfg)
			ch <- started{i, m, err}
		}()
	}
	members := make([]*member.Member, len(cfgs))
	for range cfgs {
		if s := <-ch; s.err != nil {
			t.Error(s.err)
		} else {
			members[s.i] = s.m
			t.Cleanup(s.m.Close)
		}
	}
	if t.Failed() {
		t.FailNow()
	}
	return members
}

// TestContractOfInstalledEtcd holds whatever etcd the system has, such as
// Debian's 3.4, to the contract.
func TestContractOfInstalledEtcd(t *testing.T) {
	binary := machinetest.Installed(t, "etcd")
	client, peer := "http://"+machinetest.Address(t), "http://"+machinetest.Address(t)
	cmd := exec.Command(binary, "--data-dir", filepath.Join(t.TempDir(), "d"), "--listen-client-urls", client, "--advertise-client-urls", client,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	waitFor(t, open(t, datastore.Config{Endpoints: []string{client}}))
	storetest.Run(t, func(t *testing.T) datastore.Store {
		return open(t, datastore.Config{Endpoints: []string{client}, PageSize: 7})
	})
}

func waitFor(t *testing.T, s *etcdstore.Store) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := s.Ping(ctx)
		if err == nil {
			return
		}
		if ctx.Err() != nil {
			t.Fatal(err)
		}
		<-time.After(20 * time.Millisecond)
	}
}
