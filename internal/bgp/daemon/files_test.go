package daemon

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/syncer"
)

func TestTheLastPlanIsReadAsItWasWrittenAndIsNobodyElses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "twill", planFile)
	want := plan.Plan{Node: "h1", AS: 64512, Sessions: []plan.Session{{Peer: netip.MustParseAddr("192.0.2.2"), Password: &plan.Secret{Name: "a", Key: "b"}, Restart: time.Second}}}
	for range 2 { // the second over the first
		if err := save(file, want); err != nil {
			t.Fatal(err)
		}
	}
	got, err := load(file)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v", got, err)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	if names, _ := filepath.Glob(filepath.Join(filepath.Dir(file), "*")); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
	if err := os.WriteFile(file, []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := load(file); err == nil {
		t.Error("half a plan was read")
	}
}

func TestPasswordsAreFiles(t *testing.T) {
	d := newSecretDir(t.TempDir())
	p := plan.Plan{Sessions: []plan.Session{{Password: &plan.Secret{Name: "bgp", Key: "tor"}}}}
	none := d.marks(p)
	if _, err := d.read(*p.Sessions[0].Password); err == nil {
		t.Error("a password that is not there was read")
	}
	write := func(text string) {
		t.Helper()
		path := filepath.Join(d.dir, "bgp", "tor")
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("\n")
	if _, err := d.read(*p.Sessions[0].Password); err == nil {
		t.Error("an empty password was taken")
	}
	write(" with spaces \n")
	if got, err := d.read(*p.Sessions[0].Password); got != " with spaces " || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	first := d.marks(p)
	write("another\n")
	if second := d.marks(p); first == none || second == first {
		t.Errorf("a change is not seen: %q, %q, %q", none, first, second)
	}
}

func TestAPasswordThatCannotBeReadForAMomentIsTheLastOne(t *testing.T) {
	d := newSecretDir(t.TempDir())
	secret := plan.Secret{Name: "bgp", Key: "tor"}
	path := d.path(secret)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	is := func(when, want string, fails bool) {
		t.Helper()
		if got, err := d.read(secret); got != want || (err != nil) != fails {
			t.Errorf("%s: %q, %v; want %q, an error: %v", when, got, err, want, fails)
		}
	}
	is("never there", "", true)
	write("sesame\n")
	is("there", "sesame", false)
	write("")
	is("being written", "sesame", true)
	write(strings.Repeat("x", 81))
	is("too long for TCP", "sesame", true)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	is("gone", "sesame", true)
	if got, err := d.read(plan.Secret{Name: "bgp", Key: "other"}); got != "" || err == nil {
		t.Errorf("another one is %q, %v", got, err)
	}
	write("open")
	is("there again", "open", false)
}

// TestAPasswordThatChangesIsReadAgain: the datastore says nothing, so the plan is the one of before.
func TestAPasswordThatChangesIsReadAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir, plans, batches := t.TempDir(), make(chan plan.Plan), make(chan syncer.Batch)
		secret := newSecretDir(dir)
		write := func(password string) {
			t.Helper()
			path := secret.path(plan.Secret{Name: "bgp", Key: "mesh"})
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(password), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
		write("sesame")
		k := newKeeper(Config{Node: "h1", Dir: filepath.Join(dir, "state"), Log: slog.New(slog.DiscardHandler)}, plans, secret)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- k.follow(ctx, batches) }()
		batches <- syncer.Batch{InSync: true, Updates: []api.Update{
			{Key: api.ResourcesPrefix + "nodes/h1", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`)},
			{Key: api.ResourcesPrefix + "nodes/h2", Value: []byte(`{"spec":{"bgp":{"ipv4Address":"192.0.2.2/24"}}}`)},
			{Key: api.ResourcesPrefix + "bgpconfigurations/default", Value: []byte(`{"spec":{"nodeMeshPassword":{"secretKeyRef":{"name":"bgp","key":"mesh"}}}}`)},
		}}
		first := <-plans
		if len(first.Sessions) != 1 || first.Sessions[0].Password == nil {
			t.Fatalf("%+v", first)
		}
		quiet := func() {
			t.Helper()
			select {
			case p := <-plans:
				t.Errorf("nothing has changed, and there is a plan: %+v", p)
			case <-time.After(3 * lookAgain):
			}
		}
		quiet()
		write("open sesame")
		select {
		case again := <-plans:
			if !reflect.DeepEqual(again, first) {
				t.Errorf("%+v, want %+v", again, first)
			}
		case <-time.After(2 * lookAgain):
			t.Error("the password has changed, and the speaker is not told")
		}
		quiet()
		cancel()
		<-done
	})
}
