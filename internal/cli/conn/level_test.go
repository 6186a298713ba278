package conn_test

import (
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

func TestALogLevelThatIsNoneIsUsage(t *testing.T) {
	code, _, errs := newCLI(t).Run("", "get", "tiers", "--log-level", "loud")
	if code != 2 {
		t.Errorf("a level that is none: exit %d", code)
	}
	clitest.Contains(t, errs, "want debug, info, warning")
	if code, _, errs := newCLI(t).Run("", "get", "tiers", "--log-level", "error", "--context", "any"); code != 0 {
		t.Errorf("exit %d: %s", code, errs)
	}
}
