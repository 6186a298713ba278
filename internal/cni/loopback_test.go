package cni

import (
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/containernetworking/cni/pkg/skel"
	current "github.com/containernetworking/cni/pkg/types/100"

	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestLoopbackIsUp: a runtime's call sets a container's lo up and says what addresses it has; CHECK sees that it is down.
func TestLoopbackIsUp(t *testing.T) {
	ns := netnstest.New(t)
	lo, err := ns.Rtnl().Link("lo")
	if err != nil {
		t.Fatal(err)
	}
	if err := ns.Rtnl().SetUp(lo.Index, false); err != nil {
		t.Fatal(err)
	}
	args := &skel.CmdArgs{Netns: fmt.Sprintf("/proc/self/fd/%d", ns.Handle().FD()), IfName: "lo", StdinData: []byte(`{"cniVersion": "0.3.1", "name": "cni-loopback", "type": "loopback"}`)}
	if err := loopIsUp(args); err == nil || !strings.Contains(err.Error(), "is down") {
		t.Errorf("CHECK of one that is down: %v", err)
	}
	printed := output(t, func() error { return loopUp(args) })
	if err := loopIsUp(args); err != nil {
		t.Errorf("CHECK: %v", err)
	}
	var result current.Result
	if err := json.Unmarshal([]byte(printed), &result); err != nil {
		t.Fatalf("%v: %s", err, printed)
	}
	if got := netip.MustParsePrefix(result.IPs[0].Address.String()); !got.Addr().IsLoopback() || result.CNIVersion != "0.3.1" || result.Interfaces[0].Name != "lo" {
		t.Errorf("the result is %s", printed)
	}
	args.Netns = "/run/netns/gone"
	if err := loopDown(args); err != nil {
		t.Errorf("DEL of a container that is gone: %v", err)
	}
	if err := loopUp(args); err == nil {
		t.Error("ADD of a container that is gone is no error")
	}
}

// output is what do writes to standard output.
func output(t *testing.T, do func() error) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	err = do()
	os.Stdout = stdout
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
