package usage

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var facts = Report{GUID: "0123", Type: "twill", Version: "v1", Nftables: true, Hosts: 3, WorkloadEndpoints: 40, HostEndpoints: 5, Policies: 6, Profiles: 7}

// TestAReceiverGetsWhatIsDocumented has a real server receive one, and warn.
func TestAReceiverGetsWhatIsDocumented(t *testing.T) {
	received := make(chan *http.Request, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		received <- r
		_, _ = io.WriteString(w, `{"usage_warning":"too old"}`)
	}))
	defer server.Close()
	var log bytes.Buffer
	r := New(slog.New(slog.NewTextHandler(&log, nil)))
	if err := r.send(t.Context(), server.URL+"/check?team=a", facts); err != nil {
		t.Fatal(err)
	}
	req := <-received
	want := map[string]string{
		"guid": "0123", "type": "twill,nft", "cal_ver": "unknown", "k8s_ver": "unknown", "version": "v1", "rev": "v1", "size": "3", "weps": "40", "heps": "5",
		"policies": "6", "profiles": "7", "alp": "false", "alp_policies": "0", "team": "a",
	}
	got := map[string]string{}
	for name := range req.URL.Query() {
		got[name] = req.URL.Query().Get(name)
	}
	if req.Method != http.MethodGet || req.URL.Path != "/check" || !maps.Equal(got, want) {
		t.Errorf("%s %s has\n%v, want\n%v", req.Method, req.URL.Path, got, want)
	}
	if body, _ := io.ReadAll(req.Body); len(body) > 0 || len(req.Cookies()) > 0 {
		t.Errorf("it also has %s %v", body, req.Cookies())
	}
	if !strings.Contains(log.String(), `warns" of="too old"`) {
		t.Errorf("the log has %s", &log)
	}
}

func TestAnAnswerThatIsNotOneIsAFailureOrNothing(t *testing.T) {
	for _, tt := range []struct {
		code int
		body string
		fail bool
	}{{200, "", false}, {200, "<html>", false}, {200, `{"usage_warning":7}`, false}, {204, "", false}, {500, "", true}, {404, "{}", true}, {200, strings.Repeat(" ", 1<<20), false}} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(tt.code)
			_, _ = io.WriteString(w, tt.body)
		}))
		if err := New(slog.New(slog.DiscardHandler)).send(t.Context(), server.URL, facts); (err != nil) != tt.fail {
			t.Errorf("%d %.20q: %v", tt.code, tt.body, err)
		}
		server.Close()
	}
}

// receiver notes when reports are sent, in virtual time.
type receiver struct {
	begin time.Time
	at    []time.Duration
	to    []string
	err   error
}

func (r *receiver) RoundTrip(req *http.Request) (*http.Response, error) {
	r.at, r.to = append(r.at, time.Since(r.begin)), append(r.to, req.URL.Host+" "+req.URL.Query().Get("weps"))
	if r.err != nil {
		return nil, r.err
	}
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func run(t *testing.T, do func(r *Reporter, got *receiver)) {
	synctest.Test(t, func(t *testing.T) {
		got := &receiver{begin: time.Now()}
		r := New(slog.New(slog.DiscardHandler))
		r.client.Transport = got
		ctx, end := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- r.Run(ctx) }()
		do(r, got)
		end()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("it ended with %v", err)
		}
	})
}

const aYear = 365 * 24 * time.Hour

func later(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func TestNothingIsSentUnlessAskedFor(t *testing.T) {
	for name, s := range map[string]Settings{
		"no address": {Enabled: true, Delay: time.Second, Interval: time.Second},
		"turned off": {URL: "https://a.example", Delay: time.Second, Interval: time.Second},
		"neither":    {},
	} {
		run(t, func(r *Reporter, got *receiver) {
			r.Configure(s)
			r.Know(facts)
			later(aYear)
			if len(got.at) != 0 || s.Off() == "" {
				t.Errorf("%s: %v were sent; %q", name, got.to, s.Off())
			}
		})
	}
	run(t, func(r *Reporter, got *receiver) {
		r.Configure(Settings{Enabled: true, URL: "https://a.example", Delay: time.Second, Interval: time.Second})
		later(aYear)
		if len(got.at) != 0 {
			t.Error("it was sent before the datastore was read")
		}
	})
}

func TestWhenReportsAreSent(t *testing.T) {
	s := Settings{Enabled: true, URL: "https://a.example", Delay: 5 * time.Minute, Interval: 24 * time.Hour}
	run(t, func(r *Reporter, got *receiver) {
		r.Configure(s)
		later(time.Hour)
		r.Know(facts)
		got.err = errors.New("nobody answers") // the next is sent all the same
		later(10 * 24 * time.Hour)
		if len(got.at) < 10 || len(got.at) > 12 {
			t.Fatalf("%d were sent in ten days", len(got.at))
		}
		if first := got.at[0] - time.Hour; first < s.Delay || first > s.Delay+3*time.Second {
			t.Errorf("the first came after %v", first)
		}
		for n := range got.at[1:] {
			if between := got.at[n+1] - got.at[n]; between < s.Interval*9/10 || between > s.Interval {
				t.Errorf("the next came after %v", between)
			}
		}
		sent := len(got.at)
		more := facts
		more.WorkloadEndpoints = 41
		r.Know(more)
		s.URL = "https://b.example"
		r.Configure(s)
		later(time.Hour)
		if want := []string{"b.example 41"}; !slices.Equal(got.to[sent:], want) {
			t.Errorf("after another address: %v, want %v", got.to[sent:], want)
		}
		s.Enabled = false
		r.Configure(s)
		sent = len(got.at)
		later(aYear)
		if len(got.at) != sent {
			t.Errorf("%d were sent after it was turned off", len(got.at)-sent)
		}
	})
	run(t, func(r *Reporter, got *receiver) {
		s := Settings{Enabled: true, URL: "https://a.example", Delay: time.Minute}
		r.Configure(s)
		r.Know(facts)
		later(aYear)
		if len(got.at) != 1 {
			t.Errorf("%d were sent without an interval", len(got.at))
		}
	})
}
