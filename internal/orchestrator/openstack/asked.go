package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ask has the mechanism driver resync, and answers with what came of it. The resync begins after the call, so that it has what Neutron has now.
func (s *server) ask(w http.ResponseWriter, r *http.Request) {
	done := make(chan Report, 1)
	s.mu.Lock()
	s.askAgain([]chan Report{done})
	s.mu.Unlock()
	select {
	case report := <-done:
		reply(w, http.StatusOK, report)
	case <-r.Context().Done(): // it is done all the same
	}
}

// askAgain adds to those who wait for a resync that has not begun. The lock is held.
func (s *server) askAgain(who []chan Report) {
	if s.asked = append(s.asked, who...); len(s.asked) > 0 {
		close(s.wake)
		s.wake = make(chan struct{})
	}
}

// answer ends a resync for those who asked for it, or has them wait for the next if it failed. One that succeeded is an answer also to who
// asked for an earlier one that has not ended: its driver may have died.
func (s *server) answer(token string, who []chan Report, with *Report) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if with == nil {
		s.askAgain(who)
		return
	}
	for _, earlier := range s.order[:max(0, slices.Index(s.order, token))] {
		if b, ok := s.begun[earlier]; ok {
			who, b.asked = append(who, b.asked...), nil
			s.begun[earlier] = b
		}
	}
	for _, done := range who {
		done <- *with // there is room for it
	}
}

// waitForAsked answers the driver once somebody asks for a resync, its term changes, or after as many seconds as it says.
func (s *server) waitForAsked(w http.ResponseWriter, r *http.Request) {
	within, _ := strconv.Atoi(r.URL.Query().Get("within"))
	ctx, cancel := context.WithTimeout(r.Context(), min(max(time.Second, time.Duration(within)*time.Second), pollTimeout))
	defer cancel()
	ctx, end := s.election.during(ctx, r)
	defer end()
	s.mu.Lock()
	asked, wake := len(s.asked) > 0, s.wake
	s.mu.Unlock()
	if !asked {
		select {
		case <-wake:
			asked = true
		case <-ctx.Done():
		}
	}
	reply(w, http.StatusOK, map[string]bool{"asked": asked})
}

// Resync has the plugin at a socket, and the neutron-server that it serves, make the datastore hold what Neutron has. It returns once that is so, or with
// the context's error.
func Resync(ctx context.Context, socket string) (r Report, err error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	c := http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://plugin/v1/resync/asked", strings.NewReader(""))
	if err != nil {
		return r, err
	}
	got, err := c.Do(req)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return r, errors.New("no neutron-server has handed over its database meanwhile: look whether one runs with the mechanism driver twill and this socket; it is done once one does")
	case err != nil:
		return r, fmt.Errorf("twill openstack-plugin does not answer: %w", err)
	}
	defer got.Body.Close()
	if got.StatusCode != http.StatusOK {
		return r, fmt.Errorf("twill openstack-plugin answers %s", got.Status)
	}
	return r, json.NewDecoder(got.Body).Decode(&r)
}
