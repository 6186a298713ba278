package archtest

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

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
	if !regexp.MustCompile(`(?m)^kube-api:.*\n\tgo run \./hack/kube\n\tREQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout \w+ \$\(KUBE:%=\./%\)\n`).Match(makefile) {
		t.Error("make kube-api does not build the programs and run the tests of KUBE with REQUIRE_KUBE=1")
	}
	list := regexp.MustCompile(`(?m)^KUBE := ((?:.*\\\n)*.*)$`).FindSubmatch(makefile)
	if list == nil {
		t.Fatal("the Makefile has no list KUBE")
	}
	listed := strings.Fields(strings.ReplaceAll(string(list[1]), "\\\n", " "))
	const kubetest = "internal/kubetest"
	var users []string
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		if path == kubetest || slices.Contains(slices.Concat(p.TestImports, p.XTestImports), module+kubetest) {
			users = append(users, path)
		}
	}
	for _, path := range users {
		if !slices.Contains(listed, path) {
			t.Errorf("%s has tests on Kubernetes, and is not in the Makefile's list KUBE", path)
		}
	}
	for _, path := range listed {
		if !slices.Contains(users, path) {
			t.Errorf("the Makefile's list KUBE has %s, which has no test on Kubernetes", path)
		}
	}
}
