package birdconf_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/bgp/birdconf"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// strange is the plan of everything, with one text wherever text comes from outside.
func strange(text string) birdconf.Config {
	c := everything()
	p := &c.Plan
	p.Node, p.Ignored = text, []string{text}
	mark(c, text)
	for i := range p.Sessions {
		s := &p.Sessions[i]
		s.Why, s.PeerNode = text, text
		for j := range s.Export {
			s.Export[j].Name, s.Export[j].Interface = text, text
		}
	}
	c.Secret = func(s plan.Secret) (string, error) {
		if s.Key == "none" {
			return "", errors.New(text)
		}
		return text, nil
	}
	return c
}

// mark sets the community that a plan adds to what is advertised.
func mark(c birdconf.Config, community string) {
	for _, s := range c.Plan.Sessions {
		for i := range s.Export {
			if s.Export[i].Continue {
				s.Export[i].Add = []string{community}
			}
		}
	}
}

// outside matches what BIRD's lexer takes for a text in quotes, or for a comment.
var outside = regexp.MustCompile(`"[^"\n]*"|#[^\n]*`)

// skeleton is a configuration without texts in quotes and comments.
func skeleton(text string) string { return outside.ReplaceAllString(text, "") }

// FuzzNoTextBecomesAStatement: whatever is in a name, a password, an interface or a community, BIRD reads the same
// statements; or nothing is written and the reason is given.
func FuzzNoTextBecomesAStatement(f *testing.F) {
	for _, s := range []string{
		"sesame", `back\slash`, `\`, `a"; protocol static { ipv4; route 0.0.0.0/0 blackhole; } #`, "a\nprotocol static {}", "a\rb", "1:2); reject; #", "é", "\xff\"", "a\x00b",
	} {
		f.Add(s)
	}
	community := func(c birdconf.Config, text string) birdconf.Config {
		mark(c, text)
		return c
	}
	f.Fuzz(func(t *testing.T, text string) {
		want := skeleton(render(t, community(strange("x"), "1:2")))
		got, err := birdconf.Render(community(strange(text), "1:2"))
		switch {
		case strings.ContainsAny(text, "\"\n\x00"):
			if err == nil {
				t.Errorf("%q was written", text)
			}
		case text == "": // no interface: any
		case err != nil:
			t.Errorf("%q was refused: %v", text, err)
		case skeleton(got) != want:
			t.Errorf("%q became a statement:\n%s", text, got)
		case !strings.Contains(got, `password "`+text+`";`):
			t.Errorf("%q is another password:\n%s", text, got)
		}
		if _, err := birdconf.Render(community(strange("x"), text)); err == nil && strings.Trim(text, "0123456789:") != "" {
			t.Errorf("community %q was written", text)
		}
	})
}

func TestBIRDTakesStrangeText(t *testing.T) {
	bird := machinetest.Program(t, "bird")
	for _, text := range []string{`back\slash`, `ends\`, `it's; } #//*`, "é"} {
		c := strange(text)
		mark(c, "1:2")
		path := filepath.Join(t.TempDir(), "bird.conf")
		if err := os.WriteFile(path, []byte(render(t, c)), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.Command(bird, "-p", "-c", path).CombinedOutput(); err != nil {
			t.Errorf("%q: %v: %s", text, err, out)
		}
	}
}

func TestASessionThatIsClosedOrLacksItsPasswordIsLeftOut(t *testing.T) {
	for name, tt := range map[string]struct {
		session  plan.Session
		password string
		err      error
		want     string
	}{
		"no password is wanted":                 {},
		"a password":                            {session: plan.Session{Password: &plan.Secret{}}, password: `a\b`},
		"the last one, its file is gone":        {session: plan.Session{Password: &plan.Secret{}}, password: "a", err: errors.New("gone")},
		"none":                                  {session: plan.Session{Password: &plan.Secret{}}, err: errors.New("gone"), want: "password: gone"},
		"a quote":                               {session: plan.Session{Password: &plan.Secret{}}, password: `a"b`, want: "quotes"},
		"it is not known whether one is wanted": {session: plan.Session{Closed: "spec is a text"}, want: "spec is a text"},
	} {
		err := birdconf.Omitted(tt.session, func(plan.Secret) (string, error) { return tt.password, tt.err })
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
	}
}
