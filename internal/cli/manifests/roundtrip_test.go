package manifests_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/seedtest"
	"github.com/twillnet/twill/internal/upstreamtest"
)

const secTier = "apiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: sec}\nspec: {order: 7}\n"

// TestWhatGetPrintsApplyTakes writes objects in every form that upstream's types allow, reads them and writes what was read:
// nothing is lost, nothing changes, no field is passed over in silence, and none is refused but those that docs/fields.md says are.
func TestWhatGetPrintsApplyTakes(t *testing.T) {
	a := upstreamtest.New(seedtest.Rand(t))
	fates := readFates(t)
	for _, k := range upstreamtest.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			taken := 0
			for range 12 {
				c := newCLI(t)
				c.Want(0, secTier, "apply", "-f", "-")
				if roundTrip(c, a, k, fates) {
					taken++
				}
				if t.Failed() {
					return
				}
				if taken == 2 && clitest.OnAPIServer() { // where each takes its time
					break
				}
			}
			if taken < 2 {
				t.Errorf("%d of 12 objects were taken", taken)
			}
		})
	}
}

// roundTrip writes one object, reads it, and writes what it read; false if it is refused.
func roundTrip(c *clitest.CLI, a *upstreamtest.Author, k upstreamtest.Kind, f fates) bool {
	c.T.Helper()
	o := k.Write(a)
	code, _, errs := c.Run(a.Render(a.Spell(o)), "apply", "-f", "-")
	if clitest.OnAPIServer() && code != 0 && strings.Contains(errs, "syncLabels is Disabled: with this datastore") {
		return false // a Node is that of Kubernetes
	}
	if f.check(c.T, o, code, errs); code != 0 {
		return false
	}
	get := []string{"get", strings.ToLower(k.Name), o.Name(), "-o", []string{"yaml", "json"}[a.IntN(2)]}
	if k.Namespaced {
		get = append(get, "-n", o.Namespace())
	}
	shown := c.Want(0, "", get...)
	for _, l := range o.Lost(parsed(c.T, shown)) {
		c.T.Errorf("%s is lost of\n%s\nwhich became\n%s", l, upstreamtest.Pretty(o), shown)
	}
	again(c, shown, get)
	return true
}

// again writes what was read, which must change nothing.
func again(c *clitest.CLI, shown string, get []string) {
	c.T.Helper()
	code, out, errs := c.Run(shown, "apply", "-f", "-")
	for l := range strings.Lines(out) {
		if !strings.HasSuffix(l, " unchanged\n") {
			c.T.Errorf("apply of what get printed says %s%s", l, shown)
		}
	}
	if code != 0 {
		c.T.Errorf("apply of what get printed: %s\n%s", errs, shown)
	}
	if _, now, _ := c.Run("", get...); clitest.WithoutPositions(now) != clitest.WithoutPositions(shown) {
		c.T.Errorf("apply of what get printed changes it from\n%s\nto\n%s", shown, now)
	}
}

// TestListsAndSequencesAreTakenBack is the same for several objects at once, in each form in which tools print them.
func TestListsAndSequencesAreTakenBack(t *testing.T) {
	a := upstreamtest.New(seedtest.Rand(t))
	fates := readFates(t)
	for _, k := range upstreamtest.Kinds() {
		if k.One {
			continue
		}
		t.Run(k.Name, func(t *testing.T) {
			for range 2 {
				c := newCLI(t)
				c.Want(0, secTier, "apply", "-f", "-")
				var all []upstreamtest.Object
				names := map[string]bool{}
				for len(all) < 3 {
					o := k.Write(a)
					if id := o.Namespace() + "/" + o.Name(); names[id] || !takes(c, a.Render(o)) {
						continue // refused by name, see TestWhatGetPrintsApplyTakes
					}
					names[o.Namespace()+"/"+o.Name()] = true
					all = append(all, o)
				}
				code, _, errs := c.Run(a.Bundle(k, all), "apply", "-f", "-")
				for _, o := range all {
					fates.check(t, o, code, errs)
				}
				for _, get := range [][]string{{"get", k.Plural, "-A", "-o", "yaml"}, {"get", k.Plural + ",clusterinformations", "-A", "-o", "json"}} {
					_, shown, _ := c.Run("", get...)
					for _, o := range all {
						if !strings.Contains(shown, o.Name()) {
							t.Errorf("%s is not in\n%s", o.Name(), shown)
						}
					}
					again(c, shown, get)
				}
				if t.Failed() {
					return
				}
			}
		})
	}
}

// takes reports whether a resource is valid on its own.
func takes(c *clitest.CLI, text string) bool {
	code, _, _ := c.Run(text, "validate", "-f", "-")
	return code == 0
}

func parsed(t *testing.T, text string) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	return v
}

// fates are what docs/fields.md says becomes of fields, by name.
type fates struct {
	known, refused map[string]bool
	warned         map[string]bool // whatever they say
}

var fateRow = regexp.MustCompile("(?m)^\\| `([A-Za-z0-9]+)` \\| ([a-z ]+) \\| (.*) \\|$")

func readFates(t *testing.T) fates {
	t.Helper()
	text, err := os.ReadFile("../../docs/fields.md")
	if err != nil {
		t.Fatal(err)
	}
	f := fates{map[string]bool{}, map[string]bool{}, map[string]bool{}}
	other := map[string]bool{}
	for _, m := range fateRow.FindAllStringSubmatch(string(text), -1) {
		name, fate, why := m[1], m[2], m[3]
		f.known[name] = true
		switch {
		case fate == "refused":
			f.refused[name] = true
		case fate == "warned of" && !strings.Contains(why, "in silence"):
			f.warned[name] = true
		default:
			other[name] = true
		}
	}
	for name := range other {
		delete(f.warned, name)
	}
	if len(f.known) < 200 || len(f.refused) < 3 || len(f.warned) < 10 {
		t.Fatalf("docs/fields.md has %d fields, %d refused and %d warned of", len(f.known), len(f.refused), len(f.warned))
	}
	return f
}

var warning = regexp.MustCompile(`(?m)^warning: .*$`)

// anElement is the place of an element in a path.
var anElement = regexp.MustCompile(`\[\d+\]`)

var errorPath = regexp.MustCompile(`\(line \d+\): ([^: ]+): `)

// covers reports whether the table has a field, or one that it is within.
func (f fates) covers(path string) bool {
	return slices.ContainsFunc(strings.Split(anElement.ReplaceAllString(path, ""), "."), func(name string) bool { return f.known[name] })
}

// check holds what apply said of an object against the table.
func (f fates) check(t *testing.T, o upstreamtest.Object, code int, errs string) {
	t.Helper()
	o.Fields(func(name, path string) {
		switch {
		case !f.covers(path) && !strings.HasPrefix(path, "metadata.") && name != "kind" && name != "apiVersion":
			t.Errorf("docs/fields.md does not know %s of\n%s", path, upstreamtest.Pretty(o))
		case code == 0 && f.warned[name] && !strings.Contains(errs, path):
			t.Errorf("%s is passed over in silence in\n%s\n%s", path, upstreamtest.Pretty(o), errs)
		}
	})
	if code == 0 {
		return
	}
	errs = warning.ReplaceAllString(errs, "")
	paths := errorPath.FindAllStringSubmatch(errs, -1)
	for _, m := range paths {
		parts := strings.Split(anElement.ReplaceAllString(m[1], ""), ".")
		if !f.refused[parts[len(parts)-1]] {
			t.Errorf("%s is refused, which docs/fields.md does not say, of\n%s\n%s", m[1], upstreamtest.Pretty(o), errs)
		}
	}
	if len(paths) == 0 {
		t.Errorf("apply of\n%s\n%s", upstreamtest.Pretty(o), errs)
	}
}

var aKind = regexp.MustCompile(`\bkind: (\w+)`)

// TestUpstreamsDefaultsAreTakenInSilence applies what upstream's tools and controllers write by themselves, with every default
// that they fill in, and all of it again as it is read. What upstream has with etcd alone is in a file of its own.
func TestUpstreamsDefaultsAreTakenInSilence(t *testing.T) {
	kinds := map[string]bool{}
	for _, name := range []string{"upstream.yaml", "upstream-etcd.yaml"} {
		file := "testdata/" + name
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, kind := range aKind.FindAllStringSubmatch(string(text), -1) {
			kinds[kind[1]] = true
		}
		t.Run(name, func(t *testing.T) {
			c := newCLI(t)
			if code, _, errs := c.Run("", "apply", "-f", file); code != 0 || errs != "" {
				t.Fatalf("exit code %d:\n%s", code, errs)
			}
			for _, format := range []string{"yaml", "json"} {
				get := []string{"get", "-f", file, "-o", format}
				_, shown, _ := c.Run("", get...)
				again(c, shown, get)
			}
		})
	}
	for _, k := range upstreamtest.Kinds() {
		if !kinds[k.Name] {
			t.Errorf("no file has a %s", k.Name)
		}
	}
}
