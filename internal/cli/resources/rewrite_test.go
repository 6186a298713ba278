package resources_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/resources"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// newer is a policy that a later version wrote, with a condition that Twill does not honour.
const newer = `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1","stamp":"s"},` +
	`"spec":{"tier":"default","order":5,"ingress":[{"action":"Allow","http":{"methods":["GET"]},"later":[1]}],"selector":"all()","types":["Ingress"],"newer":7}}`

func TestPatch(t *testing.T) {
	for _, tt := range []struct {
		name, args string
		code       int
		want       []string // said, or with "=" before it stored
	}{
		{"merge", "-t merge -p '{spec: {order: 9}}'", 0, []string{"networkpolicy/prod/db patched", `="order":9`}},
		{"YAML will do, and strategic is the default", "-p 'spec: {order: 9}'", 0, []string{"patched", `="order":9`}},
		{"strategic by its name", "-t strategic -p 'spec: {order: 9}'", 0, []string{"patched", `="order":9`}},
		{"finalizers are merged", `-p '{"metadata":{"finalizers":["mine"]}}'`, 0, []string{"patched", `="finalizers":["mine"]`}},
		{"directives are followed", `-p '{"spec":{"$setElementOrder/types":["Ingress"],"$deleteFromPrimitiveList/types":["Egress"]}}'`, 0, []string{"unchanged", "!Egress"}},
		{"a directive that cannot be followed", `-p '{"spec":{"ingress":[{"$patch":"delete"}]}}'`, 1, []string{"the patch: spec.ingress.$patch: there is nothing here that it could be done to"}},
		{"merge knows no directives", `-t merge -p '{"spec":{"$patch":"delete"}}'`, 1, []string{"spec.$patch: unknown field"}},
		{"a field that is there twice", `-p '{"spec":{"order":1},"spec":{"order":2}}'`, 1, []string{"already set"}},
		{"null removes a field", `-p '{"spec":{"order":null}}'`, 0, []string{"patched", "!order"}},
		{"lists are replaced whole", `-p '{"spec":{"ingress":[{"action":"Deny"}]}}'`, 0, []string{`="ingress":[{"action":"Deny"}]`}},
		{"what is so already is unchanged", "-p '{\"spec\":{\"order\":100}}'", 0, []string{"networkpolicy/prod/db unchanged"}},
		{"a field nobody knows is refused by name", `-p '{"spec":{"slector":"all()"}}'`, 1, []string{"twill: NetworkPolicy prod/db: spec.slector: unknown field; did you mean selector?\n"}},
		{"a value that is wrong", `-p '{"spec":{"selector":"app = 1"}}'`, 1, []string{"spec.selector"}},
		{"a tier that does not exist", `-p '{"spec":{"tier":"nowhere"}}'`, 1, []string{`tier "nowhere" does not exist`}},
		{"a name cannot change", `-p '{"metadata":{"name":"x"}}'`, 1, []string{`metadata.name cannot be changed to "x"; create another`}},
		{"a namespace cannot change", `-p '{"metadata":{"namespace":"x"}}'`, 1, []string{`metadata.namespace cannot be changed`}},
		{"a uid stays", `-p '{"metadata":{"uid":"mine"}}'`, 0, []string{"unchanged"}},
		{"a revision that is gone", `-p '{"metadata":{"resourceVersion":"1"},"spec":{"order":1}}'`, 1, []string{"was changed by another writer"}},
		{"the metadata cannot go", `-p '{"metadata":null}'`, 1, []string{"leaves no metadata"}},
		{"a list is no merge patch", "-p '[1]'", 1, []string{"needs --type json"}},
		{"json", `-t json -p '[{"op":"test","path":"/spec/order","value":100.0},{"op":"replace","path":"/spec/order","value":3}]'`, 0, []string{`="order":3`}},
		{"json inserts into lists", `-t json -p '[{"op":"add","path":"/spec/ingress/0","value":{"action":"Log"}}]'`, 0, []string{`="ingress":[{"action":"Log"},{`}},
		{"json copies and moves", `-t json -p '[{"op":"copy","from":"/spec/ingress/0","path":"/spec/ingress/-"},{"op":"replace","path":"/spec/ingress/2/action","value":"Deny"},{"op":"remove","path":"/spec/ingress/1"}]'`, 0, []string{"patched", "=Deny"}},
		{"a test that fails stops all", `-t json -p '[{"op":"remove","path":"/spec/order"},{"op":"test","path":"/spec/selector","value":"x"}]'`, 1, []string{"operation 1, test /spec/selector: it is app == \"db\", not x"}},
		{"json has to name a place", `-t json -p '[{"op":"replace","path":"/spec/nope","value":1}]'`, 1, []string{`operation 0, replace /spec/nope: there is no "nope"`}},
		{"json needs known operations", `-t json -p '[{"op":"frob","path":"/a"}]'`, 1, []string{`op is "frob": want add`}},
		{"nothing left", `-t json -p '[{"op":"remove","path":""}]'`, 1, []string{"leaves no object"}},
		{"no patch", "", 2, []string{"want one of -p PATCH"}},
		{"a type that is none", "-t xml -p {}", 2, []string{`--type "xml": want merge`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCLI(t)
			c.Want(0, "", "apply", "-f", clitest.Prod)
			out := c.Want(tt.code, "", clitest.Words("patch np db -n prod "+tt.args)...)
			for _, w := range tt.want {
				stored := c.Stored("networkpolicies/prod/db")
				if text, ok := strings.CutPrefix(w, "="); ok {
					clitest.Contains(t, stored, text)
				} else if text, ok := strings.CutPrefix(w, "!"); ok {
					if strings.Contains(stored, text) {
						t.Errorf("%s is in %s", text, stored)
					}
				} else {
					clitest.Contains(t, out, w)
				}
			}
		})
	}
}

func TestWhatAnotherVersionWroteSurvivesEveryEdit(t *testing.T) {
	editor := clitest.File(t, "editor", "#!/bin/sh\nsed -i 's/order: 5/order: 6/' \"$1\"\n")
	for _, tt := range []struct{ name, args, want string }{
		{"label", "label np web -n prod a=b", strings.Replace(newer, `"stamp":"s"}`, `"stamp":"s","labels":{"a":"b"}}`, 1)},
		{"patch", "patch np web -n prod -p '{spec: {order: 6}}'", strings.Replace(newer, `"order":5`, `"order":6`, 1)},
		{"json patch", `patch np web -n prod -t json -p '[{"op":"replace","path":"/spec/order","value":6}]'`, strings.Replace(newer, `"order":5`, `"order":6`, 1)},
		{"edit", "edit np web -n prod", strings.Replace(newer, `"order":5`, `"order":6`, 1)},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("EDITOR", "sh "+editor)
			t.Setenv("VISUAL", "")
			c := newCLI(t)
			c.Raw("networkpolicies/prod/web", newer)
			c.Want(0, "", clitest.Words(tt.args)...)
			if got := c.Stored("networkpolicies/prod/web"); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestWhatWasWrongBeforeStopsNoEditButNothingWrongComesIn(t *testing.T) {
	c := newCLI(t)
	c.Raw("networkpolicies/prod/web", strings.Replace(newer, `all()`, `app = 1`, 1))
	c.Want(0, "", "label", "np", "web", "-n", "prod", "a=b")
	clitest.Contains(t, c.Want(1, "", "patch", "np", "web", "-n", "prod", "-p", "{spec: {another: 1}}"), "spec.another")
	clitest.Contains(t, c.Want(1, "", "patch", "np", "web", "-n", "prod", "-p", "{spec: {selector: 'b = 2'}}"), "spec.selector")
	c.Want(0, "", "patch", "np", "web", "-n", "prod", "-p", "{spec: {selector: 'b == \"2\"'}}")
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), `b == \"2\"`, `"newer":7`)
	c.Raw("networkpolicies/prod/worse", "{")
	clitest.Contains(t, c.Want(1, "", "label", "np", "worse", "-n", "prod", "a=b"), "not JSON; delete it and create it again")
}

func TestAnEditIsRetriedOnAConflict(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.Web, "apply", "-f", "-")
	c.Outrun(3)
	clitest.Equal(t, c.Want(0, "", "label", "np", "web", "-n", "prod", "a=b"), "networkpolicy/prod/web labeled")
	c.Outrun(1000)
	clitest.Contains(t, c.Want(1, "", "label", "np", "web", "-n", "prod", "a=c", "--overwrite"), "try again when its other writer is quiet")
}

func TestLabel(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Follow(
		clitest.Step{Name: "set two", In: "", Args: "label node h1 rack=r7 zone=a", Code: 0, Want: "node/h1 labeled"},
		clitest.Step{Name: "the same again", In: "", Args: "label node h1 rack=r7", Code: 0, Want: "node/h1 unchanged"},
		clitest.Step{Name: "another value needs a word", In: "", Args: "label node h1 rack=r8", Code: 1, Want: `twill: node/h1: label rack is "r7" already; pass --overwrite to make it "r8"`},
		clitest.Step{Name: "with it", In: "", Args: "label node h1 rack=r8 --overwrite", Code: 0, Want: "node/h1 labeled"},
		clitest.Step{Name: "remove one, set one", In: "", Args: "label node h1 rack- row=2", Code: 0, Want: "node/h1 labeled"},
		clitest.Step{Name: "remove as calicoctl does", In: "", Args: "label node h1 row --remove", Code: 0, Want: "node/h1 labeled"},
		clitest.Step{Name: "remove what is not there", In: "", Args: "label node h1 row-", Code: 0, Want: "node/h1 unchanged"},
		clitest.Step{Name: "what it has now", In: "", Args: "get node h1 -o custom-columns=L:.metadata.labels", Code: 0, Want: "L\n{\"zone\":\"a\"}"},
		clitest.Step{Name: "no such node", In: "", Args: "label node h9 a=b", Code: 1, Want: "twill: node/h9 does not exist; use create or apply"},
		clitest.Step{Name: "a built-in profile", In: "", Args: "label profile projectcalico-default-allow a=b", Code: 1, Want: "twill: profile/projectcalico-default-allow is built in, and nothing is stored that could be changed"},
		clitest.Step{Name: "neither set nor remove", In: "", Args: "label node h1 rack", Code: 2, Want: `twill: label: "rack": want KEY=VALUE to set, or KEY- to remove`},
		clitest.Step{Name: "twice", In: "", Args: "label node h1 a=b a-", Code: 2, Want: "twill: label: a is given twice"},
		clitest.Step{Name: "set with --remove", In: "", Args: "label node h1 a=b --remove", Code: 2, Want: `twill: label: "a=b" with --remove: give keys only`},
		clitest.Step{Name: "no labels", In: "", Args: "label node h1", Code: 2, Want: "twill: label: want a kind, a name and labels: twill label node h1 rack=r7 old-"},
	)
	clitest.Contains(t, c.Want(1, "", "label", "node", "h1", "bad key=x"), "metadata.labels")
}

// editors makes a script of what the editor does at its first, second … run.
func editors(t *testing.T, runs ...string) {
	t.Helper()
	dir := t.TempDir()
	script := "n=$(cat " + dir + "/n 2>/dev/null || echo 0)\necho $((n+1)) > " + dir + "/n\ncp \"$1\" " + dir + "/seen$n\ncase $n in\n"
	for i, r := range runs {
		script += strings.ReplaceAll("N) ", "N", string(rune('0'+i))) + r + ";;\n"
	}
	path := filepath.Join(dir, "editor")
	if err := os.WriteFile(path, []byte(script+"esac\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("VISUAL", "sh "+path)
	t.Setenv("TMPDIR", dir)
}

func seen(t *testing.T, run string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(os.Getenv("TMPDIR"), "seen"+run))
	if err != nil {
		t.Error(err)
	}
	return string(text)
}

func TestEdit(t *testing.T) {
	const to = `sed -i 's/action: Allow/action: `
	for _, tt := range []struct {
		name string
		runs []string
		code int
		want string
		keep bool // the text is kept
	}{
		{"written", []string{to + `Deny/' "$1"`}, 0, "networkpolicy/prod/web edited", false},
		{"left as it is", []string{":"}, 0, "nothing changed, nothing written", false},
		{"emptied", []string{`: > "$1"`}, 0, "nothing changed, nothing written", false},
		{"wrong, then right", []string{to + `Dny/' "$1"`, `sed -i 's/Dny/Deny/' "$1"`}, 0, "networkpolicy/prod/web edited", false},
		{"wrong, and given up", []string{to + `Dny/' "$1"`, ":"}, 1, "spec.ingress[0].action", true},
		{"no YAML, and given up", []string{`echo '{' > "$1"`, ":"}, 1, "not YAML", true},
		{"an editor that fails", []string{"exit 3"}, 1, "exit status 3; set VISUAL or EDITOR", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := newCLI(t)
			c.Want(0, clitest.Web, "apply", "-f", "-")
			editors(t, tt.runs...)
			clitest.Contains(t, c.Want(tt.code, "", "edit", "np", "web", "-n", "prod"), tt.want)
			if left, _ := filepath.Glob(filepath.Join(os.Getenv("TMPDIR"), "twill-*")); (len(left) == 1) != tt.keep {
				t.Errorf("files: %v", left)
			}
		})
	}
	t.Run("what was wrong stands on top", func(t *testing.T) {
		c := newCLI(t)
		c.Want(0, clitest.Web, "apply", "-f", "-")
		editors(t, to+`Dny/' "$1"`, ":")
		c.Want(1, "", "edit", "np", "web", "-n", "prod")
		clitest.Contains(t, strings.ReplaceAll(seen(t, "0"), `"`, ""), "resourceVersion: "+c.Revision("networkpolicies/prod/web")+"\n", "action: Allow")
		clitest.Contains(t, seen(t, "1"), resources.Remark+"NetworkPolicy prod/web: spec.ingress[0].action", "action: Dny")
	})
}

func TestAnEditOfWhatWasChangedMeanwhileIsRefusedAndKept(t *testing.T) {
	c := newCLI(t)
	c.Want(0, clitest.Web, "apply", "-f", "-")
	editors(t, `sed -i 's/action: Allow/action: Log/' "$1"`)
	once := false
	c.Store.Fail(func(o memstore.Op) error {
		if o.Verb == "update" && !once { // another writer, at the worst moment
			once = true
			u, err := c.Store.Get(t.Context(), api.ResourcesPrefix+"networkpolicies/prod/web")
			if err == nil {
				u.Value, u.Revision = []byte(strings.Replace(string(u.Value), "Allow", "Deny", 1)), api.Revision{}
				_, err = c.Store.Update(t.Context(), u)
			}
			if err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	clitest.Contains(t, c.Want(1, "", "edit", "np", "web", "-n", "prod"), "was changed by another writer", "Your text is in ")
	clitest.Contains(t, c.Stored("networkpolicies/prod/web"), "Deny")
}
