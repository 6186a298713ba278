package kubemirror_test

import (
	"os"
	"testing"

	"github.com/twillnet/twill/internal/kubetest"
)

func TestMain(m *testing.M) { os.Exit(kubetest.Main(m.Run, kubetest.Config{})) }
