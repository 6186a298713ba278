package lab

import (
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/lab/script"
)

var bundleDir = flag.String("bundle", "", "where a failed scenario leaves what it knows")

// TestScript runs each scenario of testdata/script, in namespaces of its own.
func TestScript(t *testing.T) {
	files, err := filepath.Glob("../../testdata/script/*.txt")
	must(t, err)
	if len(files) == 0 {
		t.Fatal("no scenario in testdata/script")
	}
	exe := testBinary(t)
	for _, f := range files {
		text, err := os.ReadFile(f)
		must(t, err)
		t.Run(strings.TrimSuffix(filepath.Base(f), ".txt"), func(t *testing.T) {
			t.Parallel()
			s, err := script.Parse(f, string(text))
			must(t, err)
			var told strings.Builder
			res := Runner{Exe: exe, Out: &told, Verbose: true, Bundle: *bundleDir}.Run(t.Context(), s)
			if res.Err != nil {
				t.Errorf("%v\n%sbundle: %s", res.Err, told.String(), res.Bundle)
			}
		})
	}
}

// testBinary is twill of this tree; a test that needs it needs root too.
func testBinary(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		if os.Getenv("REQUIRE_ROOT") == "1" {
			t.Fatal("needs root, and REQUIRE_ROOT=1 forbids to skip")
		}
		t.Skip("needs root")
	}
	exe := filepath.Join(t.TempDir(), "twill")
	if out, err := exec.Command("go", "build", "-o", exe, "github.com/twillnet/twill/cmd/twill").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return exe
}
