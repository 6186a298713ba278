package cli_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

// quoted is a call of twill in a sentence: within backquotes or parentheses, up to what cannot be of it.
var quoted = regexp.MustCompile("[`(]twill ([^`):;,\"']*)[`):;,\"']")

// TestAdviceNamesCallsThatAreRight: what findings say is to be done can be typed.
func TestAdviceNamesCallsThatAreRight(t *testing.T) {
	found := 0
	for _, dir := range []string{"../doctor", "doctor", "explain"} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
				return err
			}
			text, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			for _, m := range quoted.FindAllStringSubmatch(string(text), -1) {
				found++
				words := clitest.Words(strings.TrimSuffix(strings.TrimSpace(m[1]), " -p"))
				_, err := rightCall(words)
				if last := len(words) - 1; err != nil && last >= 0 && strings.HasPrefix(words[last], "--") {
					words[last] += "=1" // a flag that wants a value, which is the reader's to say
					_, err = rightCall(words)
				}
				if err != nil {
					t.Errorf("%s: twill %s: %v", path, m[1], err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 10 {
		t.Errorf("only %d calls were found", found)
	}
}
