package archtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestModulesOfTestsFollowThisOne: a module under test that uses this one names all that this one depends on, or none of its tests is built.
func TestModulesOfTestsFollowThisOne(t *testing.T) {
	files, err := filepath.Glob(root + "test/*/go.mod")
	if err != nil || len(files) == 0 {
		t.Fatalf("no module under test: %v", err)
	}
	checked := 0
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), "replace "+strings.TrimSuffix(module, "/")+" ") {
			continue // it builds programs of others
		}
		checked++
		cmd := exec.CommandContext(t.Context(), "go", "list", "-mod=readonly", "-deps", "-test", "./...")
		cmd.Dir = filepath.Dir(f)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", f, err, out)
		}
	}
	if checked == 0 {
		t.Error("no module under test uses this one")
	}
}
