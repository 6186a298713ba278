package archtest

import (
	"regexp"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/config"
)

var ownVariable = regexp.MustCompile(`"(TWILL_[A-Z0-9_]+)"`)

// TestTheConfigurationKnowsEachVariable: an environment variable that some command reads is not called wrong by the agent and by
// "twill config", which get the same environment.
func TestTheConfigurationKnowsEachVariable(t *testing.T) {
	found := 0
	for file, text := range readAll(t, ".go") {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range ownVariable.FindAllStringSubmatch(text, -1) {
			found++
			_, problems := config.FromEnv([]string{m[1] + "=x"})
			for _, p := range problems {
				t.Errorf("%s reads %s: %v", file, m[1], p)
			}
		}
	}
	if found < 5 {
		t.Errorf("found %d variables: does the pattern still fit how they are read?", found)
	}
}
