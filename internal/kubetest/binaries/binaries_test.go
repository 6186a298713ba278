package binaries

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// source writes a source tree with programs that take no time to build, and makes it the working directory. A random comment keeps it
// apart from those of other runs.
func source(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files := map[string]string{
		"go.mod":           "module github.com/twillnet/twill\n",
		"test/kube/go.mod": "module example.com/kube\n\ngo 1.26.0\n\nexclude (\n\tk8s.io/kubernetes v1.99.7\n)\n",
		"test/kube/go.sum": "",
	}
	mark := "// " + dir + "\n"
	for _, p := range API.programs {
		files["test/kube/cmd/"+p+"/main.go"] = mark + "package main\n\nfunc main() { print(\"" + p + "\") }\n"
	}
	for name, text := range files {
		write(t, filepath.Join(dir, name), text)
	}
	t.Chdir(filepath.Join(dir, "test"))
	return dir
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func find(t *testing.T) Set {
	t.Helper()
	s, err := API.Find()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.Dir) })
	return s
}

func TestEachPartOfTheSourceGivesAFolderOfItsOwn(t *testing.T) {
	dir := source(t)
	first := find(t)
	if first.Version != "v1.99.7" || !strings.HasPrefix(filepath.Base(first.Dir), "v1.99.7-") {
		t.Errorf("version %s in %s", first.Version, first.Dir)
	}
	if again := find(t); again.Dir != first.Dir {
		t.Errorf("the same source: %s and %s", first.Dir, again.Dir)
	}
	seen := map[string]string{first.Dir: "at first"}
	for _, name := range []string{"go.mod", "go.sum", "cmd/kubectl/main.go"} {
		file := filepath.Join(dir, "test/kube", name)
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		write(t, file, string(text)+"\n")
		s := find(t)
		if other, is := seen[s.Dir]; is {
			t.Errorf("after a change of %s, the folder is that of %s", name, other)
		}
		seen[s.Dir] = name
	}
}

// TestGroupsAreApart: a change of what nodes run builds nothing that tests on an API server need, and a set is never taken for another.
func TestGroupsAreApart(t *testing.T) {
	dir := source(t)
	api := find(t)
	if s, err := Nodes.Find(); err == nil {
		t.Errorf("there is no module of nodes, and %s is found", s.Dir)
	}
	for name, text := range map[string]string{"go.mod": "exclude (\n\tk8s.io/kubernetes v1.99.7\n)\n", "go.sum": "", "cmd/kubelet/main.go": "", "cmd/kube-proxy/main.go": "", "cmd/kube-scheduler/main.go": ""} {
		write(t, filepath.Join(dir, "test/kubenode", name), text)
	}
	nodes, err := Nodes.Find()
	if err != nil || filepath.Dir(nodes.Dir) != filepath.Dir(api.Dir) || filepath.Base(nodes.Dir) == filepath.Base(api.Dir) {
		t.Errorf("nodes in %s, the API server in %s, error %v", nodes.Dir, api.Dir, err)
	}
	if err := nodes.Ready(); !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "make kube ") {
		t.Errorf("nodes: %v", err)
	}
	if again := find(t); again.Dir != api.Dir {
		t.Errorf("with nodes, the API server is in %s, and was in %s", again.Dir, api.Dir)
	}
}

func TestASourceThatIsNoneIsAnError(t *testing.T) {
	dir := source(t)
	write(t, filepath.Join(dir, "test/kube/go.mod"), "module example.com/kube\n")
	if _, err := API.Find(); err == nil || !strings.Contains(err.Error(), "does not require k8s.io/kubernetes") {
		t.Errorf("without a version: error %v", err)
	}
	t.Chdir(t.TempDir())
	if _, err := API.Find(); err == nil || !strings.Contains(err.Error(), "is not in the source") {
		t.Errorf("elsewhere: error %v", err)
	}
}

func TestWhatIsBuiltIsBuiltOnce(t *testing.T) {
	dir := source(t)
	s := find(t)
	if err := s.Ready(); !errors.Is(err, ErrNotBuilt) || !strings.Contains(err.Error(), "make kube-api") {
		t.Errorf("before: %v", err)
	}
	last := filepath.Join(dir, "test/kube/cmd", API.programs[len(API.programs)-1], "main.go")
	good, err := os.ReadFile(last)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	write(t, last, "package main\n") // no function main
	if err := s.Build(t.Context(), &out); err == nil || s.Ready() == nil {
		t.Errorf("one program of several cannot be built: error %v, and ready is %v\n%s", err, s.Ready(), &out)
	}
	write(t, last, string(good))
	out.Reset()
	if err := s.Build(t.Context(), &out); err != nil || s.Ready() != nil {
		t.Fatalf("error %v, and ready is %v\n%s", err, s.Ready(), &out)
	}
	for _, p := range API.programs {
		if got, err := exec.Command(s.Path(p)).CombinedOutput(); err != nil || string(got) != p {
			t.Errorf("%s: %q, error %v", p, got, err)
		}
		if !strings.Contains(out.String(), "built "+p+":") {
			t.Errorf("nothing says that %s is built:\n%s", p, &out)
		}
	}
	out.Reset()
	if err := s.Build(t.Context(), &out); err != nil || out.Len() > 0 {
		t.Errorf("again: error %v, and it says %q", err, &out)
	}
	if left, err := filepath.Glob(s.Dir + ".*"); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, error %v", left, err)
	}
}

// TestAToolIsBuiltByItsPackage: a program that is no command of the module, but a tool of its go.mod.
func TestAToolIsBuiltByItsPackage(t *testing.T) {
	dir := source(t)
	g := E2E
	g.packages = map[string]string{"agnhost": "example.com/e2e/images/agnhost"}
	for name, text := range map[string]string{
		"go.mod": "module example.com/e2e\n\ngo 1.26.0\n\nrequire k8s.io/kubernetes v1.99.7\n\nreplace k8s.io/kubernetes => ./kubernetes\n", "kubernetes/go.mod": "module k8s.io/kubernetes\n", "go.sum": "",
		"cmd/e2e/main.go":        "// " + dir + "\npackage main\n\nfunc main() { print(`e2e`) }\n",
		"images/agnhost/main.go": "package main\n\nfunc main() { print(`agnhost`) }\n",
	} {
		write(t, filepath.Join(dir, g.module, name), text)
	}
	s, err := g.Find()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(s.Dir) })
	if err := s.Build(t.Context(), t.Output()); err != nil {
		t.Fatal(err)
	}
	for _, p := range g.programs {
		if got, err := exec.Command(s.Path(p)).CombinedOutput(); err != nil || string(got) != p {
			t.Errorf("%s: %q, error %v", p, got, err)
		}
	}
}
