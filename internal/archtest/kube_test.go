package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// alone is a package whose tests on Kubernetes run when no other does: what they want in time, a machine that does much else cannot give.
const alone = "internal/chaostest"

// TestCIRunsTheTestsOnKubernetes: make test skips what needs Kubernetes' programs, so each package with such tests is in the list of
// make kube-api, which must not skip, and CI runs that.
func TestCIRunsTheTestsOnKubernetes(t *testing.T) {
	makefile, err := os.ReadFile(root + "Makefile")
	if err != nil {
		t.Fatal(err)
	}
	ci, err := os.ReadFile(root + ".ci/run")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^suites="[^"]*\bkube-api:\d+`).Match(ci) {
		t.Error(".ci/run does not run make kube-api")
	}
	if !regexp.MustCompile(`(?m)^kube-api:.*\n\tgo run \./hack/kube\n\tREQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout \w+ \$\(KUBE:%=\./%\)\n` +
		`\tREQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout \w+ -run 'Kubernetes\|APIServer' \$\(KUBE_SOME:%=\./%\)\n` +
		`\tcd test/conformance && REQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout \w+ -run APIServer \. -each \d+\n` +
		`\tREQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout \w+ -run APIServer \./` + alone + `\n`).Match(makefile) {
		t.Error("make kube-api does not build the programs and run the tests of KUBE with REQUIRE_KUBE=1")
	}
	listed, some := listOf(t, makefile, "KUBE"), append(listOf(t, makefile, "KUBE_SOME"), alone)
	const kubetest = "internal/kubetest"
	var users []string
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if path == kubetest || slices.Contains(slices.Concat(p.TestImports, p.XTestImports), module+kubetest) {
			users = append(users, path)
		}
	}
	for _, path := range users {
		if !slices.Contains(listed, path) && !slices.Contains(some, path) {
			t.Errorf("%s has tests on Kubernetes, and is in none of the Makefile's lists KUBE and KUBE_SOME", path)
		}
	}
	for _, path := range slices.Concat(listed, some) {
		if !slices.Contains(users, path) {
			t.Errorf("the Makefile's lists KUBE and KUBE_SOME have %s, which has no test on Kubernetes", path)
		}
	}
	for _, path := range some {
		testsOnKubernetesSaySo(t, path)
	}
}

// listOf is a list of packages in the Makefile.
func listOf(t *testing.T, makefile []byte, name string) []string {
	t.Helper()
	list := regexp.MustCompile(`(?m)^` + name + ` := (.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatalf("the Makefile has no list %s", name)
	}
	return strings.Fields(string(list[1]))
}

var (
	testFunction = regexp.MustCompile(`(?m)^func (Test[A-Z]\w*)\(t `)
	onKubernetes = regexp.MustCompile(`Kubernetes|APIServer`)
)

// testsOnKubernetesSaySo: of a package of which some tests are on Kubernetes, those in files that can start it are called so.
func testsOnKubernetesSaySo(t *testing.T, path string) {
	t.Helper()
	files, err := filepath.Glob(root + path + "/*_test.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), `/internal/kubetest"`) {
			continue
		}
		for _, m := range testFunction.FindAllStringSubmatch(string(text), -1) {
			if found++; !onKubernetes.MatchString(m[1]) {
				t.Errorf("%s: make kube-api does not run %s, which has neither Kubernetes nor APIServer in its name", file, m[1])
			}
		}
	}
	if found == 0 {
		t.Errorf("%s has no test on Kubernetes", path)
	}
}
