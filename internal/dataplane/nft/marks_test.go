package nft

import (
	"regexp"
	"strconv"
	"testing"

	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/intent/intenttest"
	"github.com/twillnet/twill/internal/kernel"
)

// TestMarksAreWithinTheMask as rules and as look-ups, while the mask changes, and by a driver that finds the table of another mask. What is allowed
// before DNAT, what no connection is made of, and what a tier passes on is known by marks.
func TestMarksAreWithinTheMask(t *testing.T) {
	h := newHosted(t)
	web, raw := pol("web", []intent.Rule{tcp(intent.Allow, 80)}, nil), pol("raw", []intent.Rule{tcp(intent.Allow, 81)}, []intent.Rule{tcpFrom(intent.Allow, 81)})
	pass := pol("pass", []intent.Rule{tcp(intent.Pass, 82)}, nil)
	e := hep("*")
	intenttest.Untracked(&e, ask(raw, in, out)...)
	intenttest.PreDNAT(&e, ask(web, in)...)
	intenttest.Normal(&e, append(ask(pass, in), ask(pol("late", nil, nil), in)...)...)
	b := pair(nil, web, raw, pass, pol("late", []intent.Rule{tcp(intent.Allow, 82), tcp(intent.Allow, 83)}, nil))
	b.Endpoints = append(b.Endpoints, e)
	h.d.Merge(b)
	for _, compiled := range []bool{false, true} {
		for _, mask := range []uint32{0, 0xff000000, 0x0000ff00, 0x00fe0000} {
			host := &intent.HostSettings{Compiled: compiled, MarkMask: mask}
			if mask == 0x00fe0000 { // a successor
				h.d, b.Host = New(h.kernelConn, Config{}), host
				h.d.Merge(b)
			}
			h.d.Merge(intent.Batch{Host: host})
			apply(t, h.d)
			h.check(t, "out>host tcp/80", "out>host tcp/82", "!out>host tcp/83", "!out>host tcp/84")
			used := marksIn(t, h.ns.Run("nft", "-s", "list", "table", "inet", "twill"))
			if of := kernel.Marks(mask).Of(^uint32(0)); used&^of != 0 || used&kernel.Marks(mask).Of(kernel.MarkHostPassed|kernel.MarkUntracked) == 0 {
				t.Errorf("mask %#08x, look-ups %v: the rules use %#08x, want bits of %#08x", mask, compiled, used, of)
			}
		}
	}
}

var (
	changed  = regexp.MustCompile(`meta mark set meta mark (&|\|) (0x[0-9a-f]+)`)
	compared = regexp.MustCompile(`meta mark (?:& )?(0x[0-9a-f]+)`)
)

// marksIn returns the bits of packets' marks that rules set, clear or ask for.
func marksIn(t *testing.T, text string) (used uint32) {
	t.Helper()
	number := func(text string) uint32 {
		n, err := strconv.ParseUint(text, 0, 32)
		if err != nil {
			t.Fatal(err)
		}
		return uint32(n)
	}
	for _, m := range changed.FindAllStringSubmatch(text, -1) {
		if n := number(m[2]); m[1] == "&" { // all but these are kept
			used |= ^n
		} else {
			used |= n
		}
	}
	for _, m := range compared.FindAllStringSubmatch(changed.ReplaceAllString(text, ""), -1) {
		used |= number(m[1])
	}
	return used
}
