package bench

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// TestASmallRunHasAllFigures measures everything once in the smallest worlds, and publishes it.
func TestASmallRunHasAllFigures(t *testing.T) {
	machinetest.Root(t)
	for _, p := range []string{"nft", "ipset", "iptables-nft-restore"} {
		machinetest.Program(t, p)
	}
	c := Config{
		Twill: itself(t), Scratch: t.TempDir(), Policies: []int{1, 3}, Pairs: 1, Block: 100, Stream: 1 << 20,
		Points: []Point{{1, 60}, {3, 60}}, Rounds: 1, Each: 2, Say: t.Logf,
	}
	r, file := &Results{Machine: ThisMachine("of a test")}, filepath.Join(t.TempDir(), "results.json")
	c.Keep = func() error { r.Machine.Ended(); return r.Save(file) }
	must(t, c.Connections(t.Context(), r))
	must(t, c.Changes(t.Context(), r))
	r, err := Read(file)
	must(t, err)
	for _, p := range r.Connections {
		if p.Failed != 0 || slices.Min(slices.Concat(p.PerSecond, p.Gbps)) <= 0 || len(p.CPU) != 1 {
			t.Errorf("%+v", p)
		}
	}
	if len(r.Connections) != 2*len(Ways) || len(r.Changes) != 2*2 {
		t.Errorf("%d ways and %d worlds", len(r.Connections), len(r.Changes))
	}
	for _, x := range r.Changes {
		if len(x.Remote) != 2 || len(x.Policy) != 2 || len(x.New) != 2 || len(x.Cold) != 1 || len(x.KernelMB) != 1 || len(x.ListMB) != 1 || len(x.ListErrors) > 0 {
			t.Errorf("%+v", x)
		}
	}
	page := filepath.Join(t.TempDir(), "page.md")
	must(t, os.WriteFile(page, []byte("# before\n"+markBegin+"\nold\n"+markEnd+"\nafter\n"), 0o600))
	plots := filepath.Join(t.TempDir(), "plots")
	must(t, r.Publish(page, plots))
	text, err := os.ReadFile(page)
	must(t, err)
	if s := string(text); !strings.HasPrefix(s, "# before\n") || !strings.HasSuffix(s, "\nafter\n") || strings.Contains(s, "old") || !strings.Contains(s, WayCompiled) || strings.Contains(s, "NaN") {
		t.Errorf("the page:\n%s", s)
	}
	drawn, err := filepath.Glob(plots + "/*.svg")
	must(t, err)
	if len(drawn) < 4 {
		t.Errorf("plots: %v", drawn)
	}
}

func TestAPageWithoutMarkersStaysAsItIs(t *testing.T) {
	page := filepath.Join(t.TempDir(), "page.md")
	must(t, os.WriteFile(page, []byte("text"), 0o600))
	if err := (&Results{}).Publish(page, t.TempDir()); err == nil {
		t.Error("no error")
	}
	if text, _ := os.ReadFile(page); string(text) != "text" {
		t.Errorf("%s", text)
	}
}

func TestPlotsAreXMLAndHaveAllPoints(t *testing.T) {
	p := Plot{Title: "a < b & c", X: "x", Y: "y"}
	for i := range 3 {
		l := Line{Name: fmt.Sprint("line ", i)}
		for _, x := range []float64{1, 10, 100} {
			l.Points = append(l.Points, Spot{x, x, x / 2, x * 2})
		}
		p.Lines = append(p.Lines, l)
	}
	for _, p.LogY = range []bool{false, true} {
		circles := 0
		for d := xml.NewDecoder(strings.NewReader(p.SVG())); ; {
			token, err := d.Token()
			if errors.Is(err, io.EOF) {
				break
			}
			must(t, err)
			if e, ok := token.(xml.StartElement); ok && e.Name.Local == "circle" {
				circles++
			}
		}
		if circles != 9 || strings.Contains(p.SVG(), "NaN") {
			t.Errorf("%d points, or one that is no number:\n%s", circles, p.SVG())
		}
		_, y := p.axes()
		if names := p.places(y); names[0]-names[1] < 17 && names[1]-names[0] < 17 || slices.Max(names) > height-below {
			t.Errorf("names at %v", names)
		}
	}
}

func TestQuantiles(t *testing.T) {
	f := Figures{4, 1, 3, 2}
	if f.Median() != 2.5 || f.Quantile(0) != 1 || f.Quantile(1) != 4 || !math.IsNaN(Figures(nil).Median()) {
		t.Errorf("%v %v %v", f.Median(), f.Quantile(0), f.Quantile(1))
	}
	if got := (Figures{1, 6}).Over(Figures{2, 3, 9}); !slices.Equal(got, Figures{0.5, 2}) {
		t.Errorf("%v", got)
	}
}

// TestScriptsMeanTheWorldsPolicies: as many chains, rules and sets as the policies have, and the one rule that lets connections in last.
func TestScriptsMeanTheWorldsPolicies(t *testing.T) {
	w := World{Policies: 200, Endpoints: 300, All: true}
	s := script{w, "cali0"}
	for _, tt := range []struct{ name, text, rule, jump string }{
		{"iptables", s.iptables(), " -j ACCEPT\n", "-A workload -j p"},
		{"nft", s.nft(), " accept\n", "jump p"},
	} {
		if n := strings.Count(tt.text, tt.jump); n != w.Policies {
			t.Errorf("%s: %d policies", tt.name, n)
		}
		if n := strings.Count(tt.text, fmt.Sprintf("dport %d ", portTCP)); n != 1 {
			t.Errorf("%s: %d rules let connections in", tt.name, n)
		}
	}
	if n := strings.Count(s.nft(), "tcp dport "); n != 3*w.Policies {
		t.Errorf("%d rules", n)
	}
	if n := strings.Count(s.ipset(), "create "); n != 2*apps+netSets+1 {
		t.Errorf("%d sets", n)
	}
}

// TestWorldsAreValid: a typing error in a world would measure a cluster that does something else.
func TestWorldsAreValid(t *testing.T) {
	w := World{Policies: 20, Endpoints: 10, All: true, Few: 5}
	for _, u := range append(base([]string{"n0"}), w.policy(0, portFirst), w.policy(9, 0), w.last(), netSet(3), remote(0), local("n0", 3, true)) {
		s, err := api.DecodeStored(u)
		if err != nil {
			t.Errorf("%s: %v", u.Key, err)
			continue
		}
		if errs := api.Validate(s.Resource); len(errs) > 0 {
			t.Errorf("%s: %v", u.Key, errs)
		}
	}
}
