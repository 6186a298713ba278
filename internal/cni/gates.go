package cni

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/containernetworking/cni/pkg/types"
)

// How long ADD waits for readiness gates, for all together, and how often it asks one.
const (
	gatesTimeout  = 30 * time.Second
	gatesInterval = 500 * time.Millisecond
)

// awaitGates waits until each URL of readiness_gates answers, with a status below 400, as upstream has it: what a container needs from its
// first moment may run on this host, too.
func (c *conf) awaitGates(ctx context.Context) error {
	if len(c.ReadinessGates) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, gatesTimeout)
	defer cancel()
	client := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer client.CloseIdleConnections()
	look := time.NewTicker(gatesInterval)
	defer look.Stop()
	for _, text := range c.ReadinessGates {
		gate, err := url.Parse(text)
		if err != nil || gate.Host == "" || gate.Scheme != "http" && gate.Scheme != "https" {
			return invalid("readiness_gates has %.100q: want a URL such as http://127.0.0.1:9099/readiness", text)
		}
		for last := error(nil); ; {
			err := ask(ctx, client, gate)
			if err == nil {
				break
			}
			if last == nil || ctx.Err() == nil { // else it may only say that the time is over
				last = err
			}
			select {
			case <-look.C:
				continue
			case <-ctx.Done():
			}
			return types.NewError(types.ErrTryAgainLater, fmt.Sprintf("%s of readiness_gates is not ready: %v", gate.Redacted(), last), "")
		}
	}
	return nil
}

// ask returns why a gate is not ready.
func ask(ctx context.Context, client *http.Client, gate *url.URL) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, gate.String(), http.NoBody)
	if err != nil {
		return err
	}
	answer, err := client.Do(r)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) { // it names the URL, with its password
			err = failed.Err
		}
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusBadRequest {
		return fmt.Errorf("it answers %s", answer.Status)
	}
	return nil
}
