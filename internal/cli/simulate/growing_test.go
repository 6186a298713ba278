package simulate_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/datastore/storetest"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/relay"
	"github.com/twillnet/twill/internal/relay/process"
	"github.com/twillnet/twill/internal/syncer"
)

// differing is what is other at each run of the page's commands, or on another machine.
var differing = regexp.MustCompile(`(https?://)?\d+\.\d+\.\d+\.\d+:\d+|@|leader|follower|\d+(\.\d+)? [KMG]?i?B\b|\d+(s|m\d+s|m|h\d+m|h|d)\b`)

// TestTheChecksOfThePageOnScale runs what docs/scale.md says of how to see that a growing cluster is well: on three members of etcd, and a relay with two clients.
func TestTheChecksOfThePageOnScale(t *testing.T) {
	if storetest.IsPoor() {
		return // the datastore is a real etcd, in any case
	}
	dir, err := os.MkdirTemp("", "scale")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	t.Setenv("ETCD_ENDPOINTS", strings.Join(threeMembers(t), ","))
	socket := filepath.Join(dir, "status.sock")
	t.Setenv("TWILL_RELAY_SOCKET", socket)
	at := relayOfTwo(t, dir, socket)
	store, err := stores.Open(t.Context(), datastore.Config{Endpoints: strings.Split(os.Getenv("ETCD_ENDPOINTS"), ","), RequestTimeout: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	if err := datastore.Put(t.Context(), store, api.Update{Key: api.KeyPrefix(api.KindGlobalNetworkSet, "") + "a", Value: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	reads(t, at, "h1", relay.Prefixes())
	reads(t, at, "h2", relay.Prefixes())
	for ready := false; !ready && t.Context().Err() == nil; {
		st, err := process.Ask(t.Context(), socket)
		ready = err == nil && len(st.Clients) == 2 && len(st.Clients[0].Reads) == 2 && len(st.Clients[1].Reads) == 2 && st.Clients[0].SentBytes > 0 && st.Clients[1].SentBytes > 0
	}
	text, err := os.ReadFile("../../docs/scale.md")
	if err != nil {
		t.Fatal(err)
	}
	_, page, ok := strings.Cut(string(text), "## A cluster that grows")
	if !ok {
		t.Fatal("there is no such section")
	}
	ran := 0
	for i, block := range strings.Split(page, "```") {
		call, is := strings.CutPrefix(block, "console\n$ twill ")
		if i%2 == 0 || !is || strings.HasPrefix(call, "simulate") {
			continue
		}
		call, want, _ := strings.Cut(call, "\n")
		ran++
		t.Run(call, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			for { // a member may be behind for a moment
				var out bytes.Buffer
				e := clitest.Env(console.Stdio{In: strings.NewReader(""), Out: &out, Err: &out})
				code := cli.Execute(t.Context(), e, clitest.Words(call))
				if code == 0 && steady(out.String()) == steady(want) {
					return
				}
				if ctx.Err() != nil {
					t.Fatalf("exit code %d, it says\n%s\nthe page\n%s", code, out.String(), want)
				}
			}
		})
	}
	if ran < 2 {
		t.Errorf("%d commands ran", ran)
	}
}

// steady is a text without that, and without the width of columns.
func steady(text string) string {
	var out []string
	for line := range strings.Lines(text) {
		out = append(out, strings.Join(strings.Fields(differing.ReplaceAllString(line, "…")), " "))
	}
	return strings.TrimSpace(strings.Join(out, "\n"))
}

// threeMembers are those of a cluster, by their endpoints.
func threeMembers(t *testing.T) (endpoints []string) {
	t.Helper()
	var all, peers []string
	for i := range 3 {
		peers = append(peers, "http://"+machinetest.Address(t))
		all = append(all, fmt.Sprintf("h%d=%s", i+1, peers[i]))
		endpoints = append(endpoints, "http://"+machinetest.Address(t))
	}
	var group errgroup.Group
	for i := range 3 {
		cfg := member.Config{
			Dir: t.TempDir(), Name: fmt.Sprint("h", i+1), ListenPeer: peers[i : i+1], ListenClient: endpoints[i : i+1], Cluster: strings.Join(all, ","), StartTimeout: 2 * time.Minute, Logger: slog.New(slog.DiscardHandler),
		}
		group.Go(func() error { // which waits for another
			m, err := member.Start(t.Context(), cfg)
			if err == nil {
				t.Cleanup(m.Close)
			}
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return endpoints
}

// relayOfTwo runs one of two relays, and returns its address.
func relayOfTwo(t *testing.T, dir, socket string) string {
	t.Helper()
	at := "unix://" + filepath.Join(dir, "relay.sock")
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- process.Run(ctx, process.Config{
			Store: datastore.Config{Endpoints: strings.Split(os.Getenv("ETCD_ENDPOINTS"), ",")}, Listen: at, Socket: socket, Relays: 2,
			Limits: relay.Limits{Most: 10_000, Least: 400}, Log: slog.New(slog.DiscardHandler),
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return at
}

// reads has a host read by a relay.
func reads(t *testing.T, at, node string, prefixes []string) {
	t.Helper()
	c, err := relay.NewClient(memstore.New(), relay.ClientConfig{Address: at, Creds: relay.Plaintext(), Who: relay.Who{Node: node, Program: "agent", Version: "v1.0.0"}})
	if err != nil {
		t.Fatal(err)
	}
	source := syncer.New(c, syncer.Config{Prefixes: prefixes})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); _ = source.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done; _ = c.Close() })
	for b := range source.Batches() {
		if b.InSync {
			go func() {
				for range source.Batches() { // until it ends
				}
			}()
			return
		}
	}
}
