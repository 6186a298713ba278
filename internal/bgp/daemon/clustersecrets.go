package daemon

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

const (
	// firstAnswer is how long a plan waits for Secrets that were not asked for before: else their sessions are opened a moment after the others.
	firstAnswer = 2 * time.Second
	// secretRetry is between attempts to follow a Secret, and up to as much again, so that nodes do not ask at the same time.
	secretRetry = 2 * time.Second
)

// clusterSecrets reads passwords from Secrets of Kubernetes. Each that a plan names is followed by itself, so that a node needs no right to others.
type clusterSecrets struct {
	from interface { // apiserver.Secrets
		Follow(ctx context.Context, name string, seen func(data map[string][]byte)) error
	}
	namespace string
	log       *slog.Logger
	life      context.Context
	news      chan struct{}
	lastRead  remembered

	mu       sync.Mutex
	followed map[string]*followedSecret // by name
}

// followedSecret is what is known of one.
type followedSecret struct {
	end      context.CancelFunc
	answered chan struct{} // closed once it is known what it has, or that it cannot be read
	known    bool
	data     map[string][]byte // nil: there is none
	err      error             // why it has never been read
	changes  int               // how many there were
}

func newClusterSecrets(life context.Context, from apiserver.Secrets, log *slog.Logger) *clusterSecrets {
	return &clusterSecrets{
		from: from, namespace: from.Namespace, log: log, life: life, news: make(chan struct{}, 1), lastRead: remembered{}, followed: map[string]*followedSecret{},
	}
}

func (c *clusterSecrets) changes() <-chan struct{} { return c.news }

// use is part of passwords.
func (c *clusterSecrets) use(ctx context.Context, p plan.Plan) {
	limit := time.NewTimer(firstAnswer)
	defer limit.Stop()
	for _, f := range c.follow(p) {
		select {
		case <-f.answered:
		case <-limit.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// follow begins to follow what a plan names, and ends what it does not. It returns what is new.
func (c *clusterSecrets) follow(p plan.Plan) (fresh []*followedSecret) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wanted := map[string]bool{}
	for _, s := range p.Sessions {
		if s.Password == nil || wanted[s.Password.Name] {
			continue
		}
		name := s.Password.Name
		wanted[name] = true
		if c.followed[name] == nil {
			ctx, end := context.WithCancel(c.life)
			f := &followedSecret{end: end, answered: make(chan struct{})}
			c.followed[name], fresh = f, append(fresh, f)
			go c.keep(ctx, name, f)
		}
	}
	for name, f := range c.followed {
		if !wanted[name] {
			f.end()
			delete(c.followed, name)
		}
	}
	return fresh
}

// keep follows a Secret until the context ends.
func (c *clusterSecrets) keep(ctx context.Context, name string, f *followedSecret) {
	defer f.end()
	logged := ""
	for {
		err := c.from.Follow(ctx, name, func(data map[string][]byte) {
			logged = ""
			c.learn(f, data, nil)
		})
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			if c.learn(f, nil, err); logged != err.Error() {
				logged = err.Error()
				c.log.Warn("a Secret with passwords of BGP cannot be read", "err", err, "retry_in", secretRetry)
			}
		}
		select {
		case <-time.After(secretRetry + rand.N(secretRetry)):
		case <-ctx.Done():
			return
		}
	}
}

// learn keeps what a Secret has, or why it cannot be read. What was known stays while the server does not answer.
func (c *clusterSecrets) learn(f *followedSecret, data map[string][]byte, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch first := !f.known && f.err == nil; {
	case err != nil && f.known:
		return
	case err != nil:
		f.err = err
		if first {
			close(f.answered)
		}
		return
	case f.known && (data == nil) == (f.data == nil) && maps.EqualFunc(data, f.data, bytes.Equal):
		return
	case first:
		close(f.answered)
	}
	f.known, f.data, f.err, f.changes = true, data, nil, f.changes+1
	select {
	case c.news <- struct{}{}:
	default:
	}
}

// read is part of passwords.
func (c *clusterSecrets) read(s plan.Secret) (string, error) {
	password, err := c.present(s)
	return c.lastRead.or(s, password, err)
}

// present is a password as it is now.
func (c *clusterSecrets) present(s plan.Secret) (string, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	where := fmt.Sprintf("Secret %s/%s", c.namespace, s.Name)
	f := c.followed[s.Name]
	switch {
	case f == nil || !f.known && f.err == nil:
		return "", fmt.Errorf("%s: the API server has not answered yet", where)
	case !f.known:
		return "", f.err
	case f.data == nil:
		return "", fmt.Errorf("there is no %s", where)
	}
	kept, found := f.data[s.Key]
	if !found {
		return "", fmt.Errorf("%s has no key %s", where, s.Key)
	}
	return passwordOf("key "+s.Key+" of "+where, kept)
}

// stamps is part of passwords.
func (c *clusterSecrets) stamps(p plan.Plan) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out strings.Builder
	for _, s := range p.Sessions {
		if s.Password == nil {
			continue
		}
		if f := c.followed[s.Password.Name]; f != nil {
			fmt.Fprintln(&out, s.Peer, s.Password.Name, f.changes)
		}
	}
	return out.String()
}
