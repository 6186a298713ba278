package resources_test

import (
	"os"
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

func newCLI(t *testing.T) *clitest.CLI { return clitest.New(t, cli.Execute) }

// TestMain runs all of it on a store without transactions, leases and an order, too.
func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }
