package config_test

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
)

// TestEachOrderOfSources: of every set of sources that give a value the last one wins, in our order and in upstream's, and one
// that is wrong gives way to the next.
func TestEachOrderOfSources(t *testing.T) {
	const name = "defaultEndpointToHostAction"
	names := map[bool][]string{ // lowest first
		false: {"file", "environment", "FelixConfiguration default", "FelixConfiguration rack", "FelixConfiguration node.h1"},
		true:  {"FelixConfiguration default", "FelixConfiguration rack", "FelixConfiguration node.h1", "file", "environment"},
	}
	for over, order := range names {
		for given := range 1 << len(order) {
			for _, wrong := range []bool{false, true} { // the highest of those given is
				top, next := "default", "default"
				for i, source := range order {
					if given&(1<<i) != 0 {
						top, next = source, top
					}
				}
				want := top
				if wrong {
					want = next
				}
				value := func(source string) string {
					if wrong && source == top {
						return "Open"
					}
					return "Accept"
				}
				file, env := config.Layer{Name: "file", Over: over, Values: map[string]string{}}, config.Layer{Name: "environment", Over: over, Values: map[string]string{}}
				var stored []*api.FelixConfiguration
				for i, source := range order {
					if given&(1<<i) == 0 {
						continue
					}
					switch source {
					case "file":
						file.Values[name] = value(source)
					case "environment":
						env.Values[name] = value(source)
					case "FelixConfiguration rack":
						stored = append(stored, felix("rack", "all()", value(source)))
					case "FelixConfiguration default":
						stored = append(stored, felix("default", "", value(source)))
					default:
						stored = append(stored, felix("node.h1", "", value(source)))
					}
				}
				t.Run(fmt.Sprintf("over=%t given=%05b wrong=%t", over, given, wrong), func(t *testing.T) {
					r := config.New("h1", file, env)
					for _, f := range stored {
						r.Set(f)
					}
					if got := resolved(t, r, name).From; got != want {
						t.Errorf("from %s, want %s", got, want)
					}
				})
			}
		}
	}
}

// TestWhatTheHostDoesNotSayRemainsTheDatastores, live, also where the host wins.
func TestWhatTheHostDoesNotSayRemainsTheDatastores(t *testing.T) {
	r := config.New("h1", config.Layer{Name: "environment", Over: true, Values: map[string]string{"healthPort": "1234"}})
	for _, action := range []string{"Accept", "Return"} {
		r.Set(felix("default", "", action))
		if e := r.Resolve(); e.Settings.EndpointToHost != action || e.Settings.Health.Port != 1234 {
			t.Errorf("%s at port %d, want %s at 1234", e.Settings.EndpointToHost, e.Settings.Health.Port, action)
		}
	}
}

func resolved(t *testing.T, r *config.Resolver, name string) config.Value {
	t.Helper()
	return value(t, r.Resolve(), name)
}
