package kubecluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/image"
)

// former is the commit whose build an upgrade begins with: FORMER, or the parent of this one.
func former() string { return cmp.Or(os.Getenv("FORMER"), "HEAD^") }

// buildFormer builds the former version, and returns its binary.
func buildFormer(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, step := range []string{
		"git -C ../.. archive --format=tar " + former() + " | tar -x -C " + dir,
		"cd " + dir + " && go build -trimpath -o bin/twill ./cmd/twill && go build -trimpath -o bin/twill-cni ./cmd/twill-cni",
	} {
		if out, err := exec.CommandContext(t.Context(), "sh", "-ec", step).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", step, err, out)
		}
	}
	return filepath.Join(dir, "bin", "twill")
}

// TestUpgradeAndRollbackLoseNothing: all nodes go to the former version, by its own manifest, and back to this one. Pods that begin meanwhile are attached.
func TestUpgradeAndRollbackLoseNothing(t *testing.T) {
	c := theCluster(t)
	old := buildFormer(t)
	packed, err := image.Twill(old, goarch, "former", time.Unix(0, 0))
	if err != nil {
		t.Fatal(err)
	}
	packed.Plain = true
	archive, err := packed.Archive()
	if err != nil {
		t.Fatal(err)
	}
	file := c.imageFile("former")
	if err := os.WriteFile(file, archive, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, n := range c.workers() {
		if err := c.ctr(t.Context(), n, "images", "import", file); err != nil {
			t.Fatal(err)
		}
	}
	versions := map[string]bool{}
	underStreams(t, func(s space) error {
		for _, to := range []struct{ what, twill, image string }{{"back", old, packed.Reference()}, {"forth", c.Twill, TwillImage}} {
			if err := c.installOf(t.Context(), to.twill, to.image); err != nil {
				return err
			}
			for _, n := range c.workers() {
				s.pod(fmt.Sprintf("meanwhile-%s-%s", to.what, n), n)
			}
			if err := s.awaitTwill(); err != nil {
				return err
			}
			s.awaitPods()
			for _, n := range c.workers() {
				now, err := s.onNode(t.Context(), n, c.Twill, "status", "-o", "jsonpath={.version}")
				if err != nil {
					return err
				}
				s.Logf("%s: the agent of %s is %s", to.what, n, now)
				versions[now] = true
			}
		}
		return nil
	})
	if len(versions) != 2 && !t.Failed() {
		t.Errorf("agents were of versions %v, want the former and this one", versions)
	}
}

// TestUninstallLeavesNodesWithoutTwill, and the resources; and what was uninstalled can be installed again.
func TestUninstallLeavesNodesWithoutTwill(t *testing.T) {
	s := newSpace(t)
	for _, n := range s.c.workers() {
		s.pod("before-"+n, n)
	}
	s.awaitPods()
	for _, n := range s.c.workers() {
		if left := s.left(n); len(left) != len(ofTwill) {
			t.Fatalf("on %s, where Twill runs, this look sees %q", n, left)
		}
	}
	manifest, err := run(exec.CommandContext(t.Context(), s.c.Twill, "kube", "uninstall", "--image", TwillImage), "")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.c.Apply(t.Context(), manifest), s.awaitTwill()); err != nil {
		t.Fatal(err)
	}
	for _, n := range s.c.workers() {
		if left := s.left(n); len(left) > 0 {
			t.Errorf("on %s there is still %q", n, left)
		}
	}
	rest, err := s.c.manifest(t.Context(), s.c.Twill, TwillImage, "--definitions=false")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.c.kubectl(t.Context(), rest, "delete", "-f", "-"); err != nil {
		t.Fatal(err)
	}
	if pools := s.run("get", "ippools.projectcalico.org", "-o", "name"); !strings.Contains(pools, "ippool") {
		t.Errorf("of the pools there is %q", pools)
	}

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := errors.Join(s.c.install(ctx), s.c.awaitReady(ctx)); err != nil {
		t.Fatal(err)
	}
	s.pod("client", "n1")
	s.pod("server", "n2")
	s.awaitPods()
	awaits(t, "installed again", func(ctx context.Context) error {
		return s.reaches(ctx, "client", "server", s.address("server")+":8080")
	})
	awaits(t, "and pods of before", func(ctx context.Context) error {
		return s.reaches(ctx, "client", "before-n3", s.address("before-n3")+":8080")
	})
}

// ofTwill are commands that print something on a node where Twill runs, and has pods.
var ofTwill = []string{
	"nft list tables | grep twill",
	"ip route show proto 80",
	"ip route show proto bgp",
	"ls /etc/cni/net.d/*twill* 2>/dev/null",
	"ls /opt/cni/bin/twill* 2>/dev/null",
}

// left are those of them that print something.
func (s space) left(node string) (out []string) {
	s.Helper()
	for _, command := range ofTwill {
		text, _ := s.onNode(s.Context(), node, "sh", "-c", command+" || true")
		if text = strings.TrimSpace(text); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// onNode runs a program as a process of a node's.
func (s space) onNode(ctx context.Context, node string, args ...string) (string, error) {
	pid, err := s.c.Pid(node)
	if err != nil {
		return "", err
	}
	return run(exec.CommandContext(ctx, "nsenter", append([]string{"--all", "--target", strconv.Itoa(pid)}, args...)...), "")
}
