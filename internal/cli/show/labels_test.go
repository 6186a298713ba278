package show

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/console"
)

// TestLabelSelectorsMeanWhatKubectlSaysTheyDo: https://kubernetes.io/docs/concepts/overview/working-with-objects/labels.
func TestLabelSelectorsMeanWhatKubectlSaysTheyDo(t *testing.T) {
	resources := map[string]map[string]string{
		"web":   {"app": "web", "tier": "front"},
		"db":    {"app": "db", "example.com/size": "7"},
		"empty": {"app": ""},
		"none":  nil,
	}
	for _, tt := range []struct{ name, selector, want string }{
		{"no selector keeps all", "", "db empty none web"},
		{"= is equality", "app=web", "web"},
		{"== is, too", "app==web", "web"},
		{"blanks do not count", " app = web , tier = front ", "web"},
		{"!= keeps what has no such label", "app!=web", "db empty none"},
		{"an empty value is not an absent label", "app=", "empty"},
		{"in is one of them", "app in (web, db)", "db web"},
		{"in with an empty value", "app in (,db)", "db empty"},
		{"notin keeps what has no such label", "app notin (web,db)", "empty none"},
		{"a name alone is there with any value", "app", "db empty web"},
		{"! is absent", "!tier", "db empty none"},
		{"commas are and", "app,!tier,app!=db", "empty"},
		{"a name with a prefix", "example.com/size=7", "db"},
		{"numbers compare", "example.com/size>6", "db"},
		{"numbers compare below", "example.com/size<7", ""},
		{"Calico's language holds as well", `app == "web" || !has(app)`, "none web"},
		{"Calico's in has braces", `app in {"web", "db"}`, "db web"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			matches, err := parseLabels(tt.selector)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for name, labels := range resources {
				if matches(labels) {
					got = append(got, name)
				}
			}
			if slices.Sort(got); strings.Join(got, " ") != tt.want {
				t.Errorf("%s on %v keeps %v, want %s", tt.selector, slices.Sorted(maps.Keys(resources)), got, tt.want)
			}
		})
	}
}

func TestLabelSelectorsThatAreNone(t *testing.T) {
	for _, tt := range []struct{ selector, want string }{
		{"app in web", `found 'web' expected: '('`},
		{"app=a b", `found 'b', expected`},
		{"app=a,", `want kubectl's`},
		{"-bad=x", `Invalid value: "-bad"`},
		{"app=" + strings.Repeat("x", 64), "must be no more than 63"},
		{"app>one", "must be an integer"},
		{`app == "web`, "-l "},
		{"app == {", "-l "},
	} {
		_, err := parseLabels(tt.selector)
		var exit console.Exit
		if !errors.As(err, &exit) || exit.Code != 2 || !strings.HasPrefix(exit.Msg, "-l ") || !strings.Contains(exit.Msg, tt.want) {
			t.Errorf("%s: exit code %d, %q; want 2 and %q", tt.selector, exit.Code, exit.Msg, tt.want)
		}
	}
}
