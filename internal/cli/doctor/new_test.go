package doctor_test

import (
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

func TestMain(m *testing.M) { clitest.Main(m) }

func newCLI(t *testing.T) *clitest.CLI { return clitest.New(t, cli.Execute) }
