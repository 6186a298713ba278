package clustercheck

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/kernel/probe"
)

// Port is at which a probe answers, by TCP (HTTP) and UDP.
const Port = 8080

// Serve answers in a pod until ctx ends: HTTP with the pod's name, UDP with what came. An error means that the port is taken.
func Serve(ctx context.Context, name string) error {
	udp, err := net.ListenPacket("udp", fmt.Sprintf(":%d", Port))
	if err != nil {
		return err
	}
	go echo(udp)
	server := &http.Server{
		Addr: fmt.Sprintf(":%d", Port), ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, name) }),
	}
	stop := context.AfterFunc(ctx, func() {
		udp.Close()
		server.Close()
	})
	defer stop()
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return err
	}
	return nil
}

func echo(udp net.PacketConn) {
	b := make([]byte, 1<<16)
	for {
		n, from, err := udp.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err == nil {
			_, _ = udp.WriteTo(b[:n], from) // who asks tries again
		}
	}
}

// Try is what a probe is asked to try.
type Try struct {
	To     string        `json:"to"`     // tcp://HOST:PORT asks by HTTP, udp://ADDRESS:PORT wants its packet back, whole://ADDRESS:PORT one of the size of the pod's MTU, open://HOST:PORT a connection, dns:NAME its addresses
	Silent bool          `json:"silent"` // nothing should come back
	Within time.Duration `json:"within"` // tried again until it is as it should be
}

// Tried is how it went.
type Tried struct {
	Answer string        `json:"answer,omitempty"` // what came back, or of what size
	Error  string        `json:"error,omitempty"`  // of the last try
	As     bool          `json:"as"`               // it became as it should be
	After  time.Duration `json:"after"`            // from the beginning until the try that was: begun, if nothing was to come back, else answered
	Took   time.Duration `json:"took"`             // the last try
}

// patience bounds one try: a name server that is asked first may be the wrong one of two.
const patience = 2 * time.Second

// Do tries in this network until it is as it should be, or the time is over.
func (t Try) Do(ctx context.Context) Tried { return t.do(ctx, patience) }

func (t Try) do(ctx context.Context, patience time.Duration) Tried {
	for began := time.Now(); ; {
		var done Tried
		start := time.Now()
		one, cancel := context.WithTimeout(ctx, patience)
		answer, err := once(one, t.To)
		cancel()
		done.Answer, done.Took, done.After = answer, time.Since(start), time.Since(began)
		if err != nil {
			done.Error = err.Error()
		}
		if t.Silent {
			done.After = start.Sub(began)
		}
		done.As = t.Silent == (err != nil)
		if done.As || time.Since(began) >= t.Within || ctx.Err() != nil {
			return done
		}
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func once(ctx context.Context, to string) (string, error) {
	if name, is := strings.CutPrefix(to, "dns:"); is {
		found, err := net.DefaultResolver.LookupHost(ctx, name)
		return strings.Join(found, ", "), err
	}
	how, at, is := strings.Cut(to, "://")
	if !is {
		return "", fmt.Errorf("%q: unknown", to)
	}
	switch how {
	case "tcp":
		return get(ctx, at)
	case "open":
		c, err := new(net.Dialer).DialContext(ctx, "tcp", at)
		if err != nil {
			return "", err
		}
		return "", c.Close()
	case "udp", "whole":
		a, err := netip.ParseAddrPort(at)
		if err != nil {
			return "", err
		}
		if how == "whole" {
			size, err := probe.Whole(ctx, a)
			return fmt.Sprintf("%d bytes", size), err
		}
		return packet(ctx, at)
	}
	return "", fmt.Errorf("%q: unknown", to)
}

// get asks by a connection of its own: one that was there before says nothing of policy.
func get(ctx context.Context, at string) (string, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at, nil)
	if err != nil {
		return "", err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(io.LimitReader(answer.Body, 1<<10))
	return string(b), err
}

// packet sends one, and wants it back.
func packet(ctx context.Context, at string) (string, error) {
	c, err := new(net.Dialer).DialContext(ctx, "udp", at)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if end, is := ctx.Deadline(); is {
		if err := c.SetDeadline(end); err != nil {
			return "", err
		}
	}
	if _, err := c.Write([]byte("twill")); err != nil {
		return "", err
	}
	b := make([]byte, 16)
	n, err := c.Read(b)
	return string(b[:n]), err
}

// command is how a probe is asked, in its pod.
func (t Try) command() ([]string, error) {
	b, err := json.Marshal(t)
	return []string{"/usr/bin/twill", "check", "try", string(b)}, err
}
