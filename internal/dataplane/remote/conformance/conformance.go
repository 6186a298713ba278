// Package conformance tries whether a dataplane driver keeps the protocol of api/dataplanepb, as docs/remote-dataplane.md puts it.
//
// In: the address of a driver that no agent uses. Out: a [Result] for each case. What a driver does to packets is not tried: that needs its dataplane.
package conformance

import (
	"context"
	"fmt"
	"time"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/dataplane/remote"
)

// DefaultPatience is how long a case may take.
const DefaultPatience = 10 * time.Second

// Config is which driver, and how.
type Config struct {
	Address  string        // unix:///PATH of its socket
	Patience time.Duration // how long a case may take; zero: [DefaultPatience]
	Kernel   bool          // go on with a driver that programs this host's kernel
}

// Result is what became of a case.
type Result struct {
	Case   string `json:"case"`
	About  string `json:"about"` // what a driver must do
	OK     bool   `json:"ok"`
	Reason string `json:"reason,omitempty"` // why it is not
}

// aCase is one case. Whatever is in force when it begins, it makes streams of its own.
type aCase struct {
	name, about string
	run         func(context.Context, *suite) error
}

// suite is a run.
type suite struct{ cfg Config }

// Run runs all cases, and leaves the driver with nothing in force. The error says why no case could run: nobody answers, or the driver programs
// this host's kernel, which is not cleared unless the configuration allows it.
func Run(ctx context.Context, cfg Config) ([]Result, error) {
	if err := remote.Address(cfg.Address); err != nil {
		return nil, err
	}
	if cfg.Patience == 0 {
		cfg.Patience = DefaultPatience
	}
	s := &suite{cfg}
	if err := s.allowed(ctx); err != nil {
		return nil, err
	}
	return s.all(ctx, cases)
}

// all runs cases in their order. Each begins with an empty commit, which takes away what the one before had in force when it failed.
func (s *suite) all(ctx context.Context, cases []aCase) (out []Result, err error) {
	for _, c := range cases {
		r := Result{Case: c.name, About: c.about, OK: true}
		if err := s.try(ctx, c); err != nil {
			r.OK, r.Reason = false, err.Error()
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		out = append(out, r)
	}
	if !out[len(out)-1].OK {
		ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
		defer cancel()
		_ = s.empty(ctx) // whether it can be or not, the reason is that of the case
	}
	return out, nil
}

// allowed returns an error if a driver must not be tried.
func (s *suite) allowed(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	t, err := s.dial(ctx)
	if err != nil {
		return fmt.Errorf("no stream to %s: %w", s.cfg.Address, err)
	}
	defer t.cut()
	if err := t.send(hello(remote.Version)); err != nil {
		return err
	}
	m, err := t.receive()
	if err != nil {
		return fmt.Errorf("no greeting from %s: %w", s.cfg.Address, err)
	}
	if m.GetWelcome().GetKernel() && !s.cfg.Kernel {
		return fmt.Errorf("%s programs this host's kernel, and what is in force there would be removed: on a machine for tests, give --kernel", m.GetWelcome().GetName())
	}
	return nil
}

// try runs a case, and then empties the driver, which must still serve.
func (s *suite) try(ctx context.Context, c aCase) error {
	own, cancel := context.WithTimeout(ctx, s.cfg.Patience)
	defer cancel()
	if err := c.run(own, s); err != nil {
		return err
	}
	if err := s.empty(own); err != nil {
		return fmt.Errorf("afterwards a new stream is not served: %w", err)
	}
	return nil
}

// empty has the driver have nothing in force, by a stream of its own.
func (s *suite) empty(ctx context.Context) error {
	t, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer t.cut()
	return t.accepted()
}

func hello(version uint32) *pb.ToDriver {
	return &pb.ToDriver{Item: &pb.ToDriver_Hello{Hello: &pb.Hello{Version: version, Node: "conformance", Agent: "conformance"}}}
}
