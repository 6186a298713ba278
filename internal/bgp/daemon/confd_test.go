package daemon

import (
	"bufio"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// fakeBIRD answers at a control socket as BIRD does, and sends the commands that it was given to a channel.
func fakeBIRD(t *testing.T, writeJSON string) (socket string, commands chan string) {
	t.Helper()
	socket, commands = filepath.Join(t.TempDir(), "ctl"), make(chan string, 8)
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "0001 BIRD 2.0.12 ready.")
			line, _ := bufio.NewReader(c).ReadString('\n')
			commands <- strings.TrimSpace(line)
			fmt.Fprint(c, writeJSON)
			_ = c.Close()
		}
	}()
	return socket, commands
}

func TestNoConfigurationIsMadeOfADatastoreThatIsNotReady(t *testing.T) {
	store, k := memstore.New(), newPlanSource(Config{Node: "h1", Dir: t.TempDir()}, nil, nil)
	key := api.ResourcesPrefix + "clusterinformations/default"
	for _, tt := range []struct {
		spec string
		want error
	}{{`{"datastoreReady":false}`, errNotReady}, {`{"datastoreReady":true}`, nil}, {`{}`, nil}} {
		_ = store.Delete(t.Context(), key, api.Revision{})
		if _, err := store.Create(t.Context(), api.Update{Key: key, Value: []byte(`{"spec":` + tt.spec + `}`)}); err != nil {
			t.Fatal(err)
		}
		if _, err := k.read(t.Context(), store); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.spec, err, tt.want)
		}
	}
}

func TestBIRDsConfigurationIsReplacedOnlyWhenItChangedAndIsRight(t *testing.T) {
	ns := netnstest.New(t)
	socket, commands := fakeBIRD(t, "0002-Reading configuration from /etc/bird/bird.conf\n0003 Reconfigured\n")
	dir := t.TempDir()
	checked, refuse := 0, error(nil)
	w := &confWriter{rtnl: ns.Rtnl(), secrets: newSecretDir(dir), cfg: Confd{
		Config: Config{Log: slog.New(slog.DiscardHandler)}, Output: filepath.Join(dir, "bird.conf"), Bird: socket,
		Check: func(string) error { checked++; return refuse },
	}}
	p := plan.Plan{Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1")}
	content := func() string { b, _ := os.ReadFile(w.cfg.Output); return string(b) }
	write := func(want error) {
		t.Helper()
		if err := w.write(p); !errors.Is(err, want) {
			t.Fatalf("write: %v, want %v", err, want)
		}
	}
	write(nil)
	if got := <-commands; got != "configure" || !strings.Contains(content(), "router id 192.0.2.1;") {
		t.Errorf("BIRD was sent %q; the file has\n%s", got, content())
	}
	if info, err := os.Stat(w.cfg.Output); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	write(nil) // the same
	if checked != 1 || len(commands) != 0 {
		t.Errorf("what did not change was checked %d times, and %d commands were sent", checked, len(commands))
	}
	if err := os.Chmod(w.cfg.Output, 0o640); err != nil {
		t.Fatal(err)
	}
	block := rtnl.Route{Dst: netip.MustParsePrefix("10.65.1.0/26"), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent}
	if err := ns.Rtnl().AddRoute(block); err != nil {
		t.Fatal(err)
	}
	write(nil)
	<-commands
	if info, _ := os.Stat(w.cfg.Output); !strings.Contains(content(), "10.65.1.0/26{27,32}") || info.Mode().Perm() != 0o640 {
		t.Errorf("after a new block, mode %v:\n%s", info.Mode(), content())
	}
	before := content()
	refuse = errors.New("syntax error")
	p.RouterID = netip.MustParseAddr("192.0.2.9")
	write(refuse)
	if _, err := os.Stat(w.cfg.Output + ".stage"); content() != before || err == nil || len(commands) != 0 {
		t.Errorf("what BIRD refuses: stage file %v, %d commands, file\n%s", err, len(commands), content())
	}
	w.cfg.KeepStage = true
	write(refuse)
	if _, err := os.Stat(w.cfg.Output + ".stage"); err != nil {
		t.Error(err)
	}
}
