package kubetest

import (
	"fmt"
	"os"
	"testing"

	"github.com/twillnet/twill/internal/kubetest/binaries"
)

// holdVariable makes the test binary start a server, say where it is, and wait until it is killed.
const holdVariable = "KUBETEST_HOLD"

func TestMain(m *testing.M) {
	run := m.Run
	if os.Getenv(holdVariable) != "" {
		run = hold
	}
	os.Exit(Main(run, Config{}))
}

func hold() int {
	set, err := binaries.API.Find()
	if err != nil {
		fmt.Println(err)
		return 1
	}
	s, err := launch(set, Config{ControllerManager: true})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	fmt.Println(s.dir, s.etcd.Pid, s.api.Pid, s.controllers.Pid)
	select {}
}
