package daemon

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// server is an API server as far as Secrets are followed there.
type server struct {
	secrets map[string]map[string][]byte
	err     error         // it answers with that
	silent  chan struct{} // it answers nothing until this is closed; nil: at once
	asked   []string
	running map[string]chan struct{} // by name: a watch, until it is closed
}

// Follow implements what apiserver.Secrets has.
func (s *server) Follow(ctx context.Context, name string, seen func(map[string][]byte)) error {
	s.asked = append(s.asked, name)
	for s.silent != nil {
		select {
		case <-s.silent:
			s.silent = nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if s.err != nil {
		return s.err
	}
	for {
		next := make(chan struct{})
		s.running[name] = next
		seen(s.secrets[name])
		select {
		case <-next:
			if s.err != nil {
				return s.err
			}
		case <-ctx.Done():
			delete(s.running, name)
			return ctx.Err()
		}
	}
}

// set changes a Secret, for who follows it.
func (s *server) set(name string, data map[string][]byte) {
	s.secrets[name] = data
	s.wake(name)
}

func (s *server) wake(name string) {
	if running := s.running[name]; running != nil {
		delete(s.running, name) // before: who is woken puts the next one there
		close(running)
	}
	synctest.Wait()
}

func inCluster(t *testing.T, test func(*testing.T, *server, *clusterSecrets)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := &server{secrets: map[string]map[string][]byte{}, running: map[string]chan struct{}{}}
		c := newClusterSecrets(ctx, apiserver.Secrets{Namespace: "kube-system"}, slog.New(slog.DiscardHandler))
		c.from = s
		test(t, s, c)
		cancel()
		synctest.Wait()
	})
}

// naming is a plan with a session for each of these passwords.
func naming(secrets ...plan.Secret) plan.Plan {
	p := plan.Plan{Node: "h1"}
	for _, s := range secrets {
		p.Sessions = append(p.Sessions, plan.Session{Password: &s})
	}
	return p
}

var tor = plan.Secret{Name: "bgp", Key: "tor"}

// is fails unless the password is that, and the error has these words; none: there is no error.
func (c *clusterSecrets) is(t *testing.T, when, password, words string) {
	t.Helper()
	got, err := c.read(tor)
	if got != password || (err != nil) != (words != "") || err != nil && !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %q, %v; want %q, and an error with %q", when, got, err, password, words)
	}
}

// changed reports whether who waits is notified that passwords may have changed, and whether those of the plan have.
func (c *clusterSecrets) changed(p plan.Plan, before string) (signalled, other bool) {
	select {
	case <-c.changes():
		signalled = true
	default:
	}
	return signalled, c.stamps(p) != before
}

func TestPasswordsAreSecretsOfTheCluster(t *testing.T) {
	inCluster(t, func(t *testing.T, s *server, c *clusterSecrets) {
		p := naming(tor, plan.Secret{Name: "bgp", Key: "mesh"})
		c.use(t.Context(), p)
		c.is(t, "before there is one", "", "there is no Secret kube-system/bgp")
		if !slices.Equal(s.asked, []string{"bgp"}) {
			t.Errorf("asked for %v: want the one that is named, once", s.asked)
		}
		for _, step := range []struct {
			when            string
			data            map[string][]byte
			password, words string
		}{
			{"without the key", map[string][]byte{"other": []byte("x")}, "", "has no key tor"},
			{"empty", map[string][]byte{"tor": []byte("\n")}, "", "key tor of Secret kube-system/bgp is empty"},
			{"too long for TCP", map[string][]byte{"tor": []byte(strings.Repeat("x", 81))}, "", "81 bytes"},
			{"there", map[string][]byte{"tor": []byte("sesame\n")}, "sesame", ""},
			{"another", map[string][]byte{"tor": []byte("open")}, "open", ""},
			{"empty again", map[string][]byte{"tor": nil}, "open", "is empty"},
			{"deleted", nil, "open", "there is no Secret"},
			{"made again", map[string][]byte{"tor": []byte("new")}, "new", ""},
		} {
			before := c.stamps(p)
			_, _ = c.changed(p, before)
			s.set("bgp", step.data)
			if signalled, other := c.changed(p, before); !signalled || !other {
				t.Errorf("%s: who waits is notified: %v; stamps are others: %v", step.when, signalled, other)
			}
			c.is(t, step.when, step.password, step.words)
			before = c.stamps(p)
			s.wake("bgp") // the same once more, as after a watch that ended
			if signalled, other := c.changed(p, before); signalled || other {
				t.Errorf("%s, seen once more: signalled: %v; stamps are others: %v", step.when, signalled, other)
			}
		}
	})
}

// TestAnAPIServerThatIsAwayChangesNoPassword: what was known stays, also that there is none.
func TestAnAPIServerThatIsAwayChangesNoPassword(t *testing.T) {
	inCluster(t, func(t *testing.T, s *server, c *clusterSecrets) {
		s.secrets["bgp"] = map[string][]byte{"tor": []byte("sesame")}
		c.use(t.Context(), naming(tor))
		c.is(t, "there", "sesame", "")
		s.err = errors.New("connection refused")
		s.wake("bgp")
		<-time.After(time.Minute) // virtual
		c.is(t, "away", "sesame", "")
		s.err = nil
		s.secrets["bgp"] = map[string][]byte{"tor": []byte("open")}
		<-time.After(2 * secretRetry)
		synctest.Wait()
		c.is(t, "back", "open", "")
	})
	inCluster(t, func(t *testing.T, s *server, c *clusterSecrets) { // away from the beginning
		s.err = errors.New("connection refused")
		c.use(t.Context(), naming(tor))
		c.is(t, "away", "", "connection refused")
		s.err = nil
		s.secrets["bgp"] = map[string][]byte{"tor": []byte("open")}
		<-time.After(2 * secretRetry)
		synctest.Wait()
		c.is(t, "back", "open", "")
	})
	inCluster(t, func(t *testing.T, s *server, c *clusterSecrets) { // it answers nothing, for a while
		s.silent = make(chan struct{})
		s.secrets["bgp"] = map[string][]byte{"tor": []byte("open")}
		began := time.Now()
		c.use(t.Context(), naming(tor))
		if waited := time.Since(began); waited != firstAnswer {
			t.Errorf("a plan waits %v for it, want %v", waited, firstAnswer)
		}
		c.is(t, "silent", "", "has not answered yet")
		close(s.silent)
		synctest.Wait()
		c.is(t, "back", "open", "")
	})
}

// TestASecretIsFollowedWhileAPlanNamesIt, and no longer.
func TestASecretIsFollowedWhileAPlanNamesIt(t *testing.T) {
	inCluster(t, func(t *testing.T, s *server, c *clusterSecrets) {
		other := plan.Secret{Name: "other", Key: "k"}
		for _, step := range []struct {
			p    plan.Plan
			want []string
		}{{naming(), nil}, {naming(tor), []string{"bgp"}}, {naming(tor, other), []string{"bgp", "other"}}, {naming(other), []string{"other"}}, {naming(), nil}} {
			c.use(t.Context(), step.p)
			synctest.Wait()
			if got := slices.Sorted(maps.Keys(s.running)); !slices.Equal(got, step.want) {
				t.Errorf("followed are %v, want %v", got, step.want)
			}
		}
	})
}

// TestAPasswordOfTheClusterIsTakenAtOnce: a plan is sent again without waiting for the next look at files.
func TestAPasswordOfTheClusterIsTakenAtOnce(t *testing.T) {
	inCluster(t, func(t *testing.T, s *server, c *clusterSecrets) {
		p := naming(tor)
		out := make(chan plan.Plan)
		k := newPlanSource(Config{Node: "h1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}, out, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- errors.Join(k.send(ctx, p), k.follow(ctx, nil)) }()
		<-out
		synctest.Wait()
		began := time.Now()
		s.set("bgp", map[string][]byte{"tor": []byte("sesame")})
		<-out
		if waited := time.Since(began); waited != 0 {
			t.Errorf("it is sent %v later", waited)
		}
		c.is(t, "sent", "sesame", "")
		cancel()
		<-done
	})
}

// TestSessionsOfTheLastRunGetTheirPasswordsOnceTheServerAnswers: bgp starts with the plan on disk while the API server is away, so that these sessions are closed.
func TestSessionsOfTheLastRunGetTheirPasswordsOnceTheServerAnswers(t *testing.T) {
	inCluster(t, func(t *testing.T, s *server, c *clusterSecrets) {
		cfg := Config{Node: "h1", Dir: t.TempDir(), Log: slog.New(slog.DiscardHandler)}
		if err := save(filepath.Join(cfg.Dir, planFile), naming(tor)); err != nil {
			t.Fatal(err)
		}
		s.err = errors.New("connection refused")
		out := make(chan plan.Plan)
		k := newPlanSource(cfg, out, c)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- errors.Join(k.send(ctx, k.previous), k.follow(ctx, nil)) }()
		<-out
		c.is(t, "away", "", "connection refused")
		<-time.After(time.Hour) // virtual
		s.err = nil
		s.secrets["bgp"] = map[string][]byte{"tor": []byte("sesame")}
		began := time.Now()
		if p := <-out; len(p.Sessions) != 1 {
			t.Errorf("sent again: %d sessions", len(p.Sessions))
		}
		if waited := time.Since(began); waited > 2*secretRetry {
			t.Errorf("it is sent %v later", waited)
		}
		c.is(t, "back", "sesame", "")
		cancel()
		<-done
	})
}
