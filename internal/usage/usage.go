// Package usage reports how much a cluster has, and which versions, to a URL that the operator sets. No name and no address is in a report.
package usage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/config"
)

// Report is what is sent. The names of its parameters are those of upstream's agent, so that what receives those can receive these.
type Report struct {
	GUID          string // clusterGUID of ClusterInformation default, a random number
	Type          string // clusterType, such as twill
	CalicoVersion string // calicoVersion, which Twill does not write
	Version       string // of the agent, which says its source, too
	Nftables      bool   // policy is in nftables

	Hosts, WorkloadEndpoints, HostEndpoints, Policies, Profiles int
}

// Parameters are those of the request.
func (r Report) Parameters() url.Values {
	const unknown = "unknown"
	kind := cmp.Or(r.Type, unknown)
	if r.Nftables {
		kind += ",nft"
	}
	return url.Values{
		"guid": {cmp.Or(r.GUID, unknown)}, "type": {kind}, "cal_ver": {cmp.Or(r.CalicoVersion, unknown)}, "k8s_ver": {unknown},
		"version": {cmp.Or(r.Version, unknown)}, "rev": {cmp.Or(r.Version, unknown)},
		"size": {strconv.Itoa(r.Hosts)}, "weps": {strconv.Itoa(r.WorkloadEndpoints)}, "heps": {strconv.Itoa(r.HostEndpoints)},
		"policies": {strconv.Itoa(r.Policies)}, "profiles": {strconv.Itoa(r.Profiles)}, "alp": {"false"}, "alp_policies": {"0"},
	}
}

// Settings say whether and where reports go.
type Settings config.Usage

// Off is why nothing is sent; empty: reports are sent.
func (s Settings) Off() string {
	switch {
	case s.URL == "":
		return "usageReportingURL is not set"
	case !s.Enabled:
		return "usageReportingEnabled is false"
	}
	return ""
}

// to is a URL with the parameters of a report besides its own.
func to(base string, r Report) (string, error) {
	u, err := url.Parse(base)
	if err != nil {
		return "", err
	}
	q := u.Query()
	for name, values := range r.Parameters() {
		q[name] = values
	}
	u.RawQuery = q.Encode()
	return u.String(), nil
}

// Reporter sends reports.
type Reporter struct {
	log     *slog.Logger
	client  http.Client
	changed chan struct{}

	mu    sync.Mutex // guards what follows
	set   Settings
	facts *Report // nil: not known so far
}

// answerWithin is how long the receiver may take.
const answerWithin = 5 * time.Second

// longestAnswer is how much of an answer is read, in bytes.
const longestAnswer = 64 << 10

// New makes a Reporter, to which Configure and Know say the rest.
func New(log *slog.Logger) *Reporter {
	return &Reporter{log: log, changed: make(chan struct{}, 1)}
}

// Configure has other settings take effect: a delay or an interval that has begun begins again.
func (r *Reporter) Configure(s Settings) {
	r.mu.Lock()
	same := r.set == s
	r.set = s
	r.mu.Unlock()
	if !same {
		r.wake()
	}
}

// Know takes what there is to report. The first time starts the delay.
func (r *Reporter) Know(facts Report) {
	r.mu.Lock()
	first := r.facts == nil
	if first || *r.facts != facts { // it is called with each change, most of which change none of this
		r.facts = &facts
	}
	r.mu.Unlock()
	if first {
		r.wake()
	}
}

func (r *Reporter) wake() {
	select {
	case r.changed <- struct{}{}:
	default: // it is awake
	}
}

// Next is what would be sent now, and the settings. known is false while the datastore has not been read.
func (r *Reporter) Next() (s Settings, facts Report, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.facts == nil {
		return r.set, Report{}, false
	}
	return r.set, *r.facts, true
}

// Run sends reports until the context ends.
func (r *Reporter) Run(ctx context.Context) error {
	timer := time.NewTimer(0)
	defer timer.Stop()
	timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-r.changed:
			timer.Stop()
			if s, facts, known := r.Next(); known && s.Off() == "" {
				timer.Reset(s.Delay + spread(facts.Hosts))
			}
		case <-timer.C:
			s, facts, _ := r.Next()
			if err := r.send(ctx, s.URL, facts); err != nil && ctx.Err() == nil {
				r.log.Warn("the usage report was not received, and is tried again with the next", "err", err)
			}
			if s.Interval > 0 {
				timer.Reset(s.Interval - rand.N(s.Interval/10+1))
			}
		}
	}
}

// spread is a random time, so that hosts that begin at once do not report at once: up to a second for each host, at most 10,000.
func spread(hosts int) time.Duration {
	return rand.N(time.Duration(min(max(hosts, 1), 10000)) * time.Second)
}

// send sends one, and logs what the receiver warns of.
func (r *Reporter) send(ctx context.Context, base string, facts Report) error {
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	address, err := to(base, facts)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return err
	}
	resp, err := r.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		return errors.New(resp.Status)
	}
	r.log.Info("reported usage, as `twill config --usage-report` shows it", "to", req.URL.Redacted())
	var answer struct {
		Warning string `json:"usage_warning"`
	}
	if json.NewDecoder(io.LimitReader(resp.Body, longestAnswer)).Decode(&answer) == nil && answer.Warning != "" { // an answer is not asked for
		r.log.Warn("the receiver of usage reports warns", "of", strings.ToValidUTF8(answer.Warning, "?"))
	}
	return nil
}
