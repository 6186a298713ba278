// Package binaries builds Kubernetes' own programs for tests, once.
//
// In: the modules test/kube (an API server, its controllers, kubectl), test/kubenode (what else a cluster runs) and test/kubee2e (upstream's
// tests on one), which pin their version. Out: static programs in folders next to Go's build cache, which CI keeps between runs. A folder
// is named by what its programs are made of, so that a change of it builds them again, and nothing else does.
package binaries

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Group is programs that are built together, of one module.
type Group struct {
	module   string // its folder in the source
	prefix   string // of the name of the folder that they are in
	programs []string
	packages map[string]string // of programs that are no command of the module: their import paths, which are tools in its go.mod
	builder  string            // what builds them, for who lacks them
}

// API is what tests on an API server need. Nodes is what a cluster has besides: no test of make kube-api waits until it is built. E2E is
// Kubernetes' own tests of NetworkPolicies, and the program of the image that their pods run.
var (
	API   = Group{module: "test/kube", programs: []string{"kube-apiserver", "kube-controller-manager", "kubectl"}, builder: "make kube-api"}
	Nodes = Group{module: "test/kubenode", prefix: "nodes-", programs: []string{"kubelet", "kube-proxy", "kube-scheduler"}, builder: "make kube"}
	E2E   = Group{
		module: "test/kubee2e", prefix: "e2e-", programs: []string{"e2e", "agnhost"}, builder: "make kube-netpol",
		packages: map[string]string{"agnhost": "k8s.io/kubernetes/test/images/agnhost"},
	}
)

// ErrNotBuilt is that of programs which nobody has built yet.
var ErrNotBuilt = errors.New("the programs of Kubernetes are not built")

const ours = "module github.com/twillnet/twill\n"

var release = regexp.MustCompile(`(?m)^(?:\t|require )k8s\.io/kubernetes (v(\d+)\.(\d+)\.\S+)$`)

// Set is the programs of one version.
type Set struct {
	Dir     string // where they are, or will be
	Version string // of Kubernetes, as go.mod of their module has it, such as v1.36.3

	group  Group
	source string   // the module
	flags  []string // of go build
}

// Find says where the programs of this source are, be they built or not. It looks for the source from the working directory upwards.
func (g Group) Find() (Set, error) {
	source, err := findSource(g.module)
	if err != nil {
		return Set{}, err
	}
	out, err := exec.Command("go", "env", "GOCACHE").Output()
	if err != nil {
		return Set{}, fmt.Errorf("go env GOCACHE: %w", err)
	}
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH)
	s := Set{group: g, source: source}
	for _, name := range append([]string{"go.mod", "go.sum"}, g.mains()...) {
		b, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return Set{}, err
		}
		fmt.Fprintln(hash, name, len(b))
		hash.Write(b)
		if m := release.FindSubmatch(b); m != nil {
			s.Version, s.flags = string(m[1]), buildFlags(string(m[1]), string(m[2]), string(m[3]))
		}
	}
	if s.Version == "" {
		return Set{}, fmt.Errorf("%s/go.mod does not require k8s.io/kubernetes", source)
	}
	fmt.Fprintln(hash, s.flags)
	s.Dir = filepath.Join(strings.TrimSpace(string(out)), "twill-kube", fmt.Sprintf("%s%s-%x", g.prefix, s.Version, hash.Sum(nil)[:6]))
	return s, nil
}

func (g Group) mains() (files []string) {
	for _, p := range g.programs {
		if g.packages[p] == "" {
			files = append(files, filepath.Join("cmd", p, "main.go"))
		}
	}
	return files
}

// buildFlags make a static, stripped program that says which version it is: else the API server takes itself for v0.0.0.
func buildFlags(version, major, minor string) []string {
	ld := "-s -w"
	for _, at := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		ld += fmt.Sprintf(" -X %[1]s.gitVersion=%s -X %[1]s.gitMajor=%s -X %[1]s.gitMinor=%s", at, version, major, minor)
	}
	return []string{"-trimpath", "-buildvcs=false", "-ldflags=" + ld}
}

func findSource(module string) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for at := dir; ; at = filepath.Dir(at) {
		if b, err := os.ReadFile(filepath.Join(at, "go.mod")); err == nil && bytes.HasPrefix(b, []byte(ours)) {
			return filepath.Join(at, filepath.FromSlash(module)), nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%s is not in the source of twill", dir)
		}
	}
}

// Path is where a program is.
func (s Set) Path(program string) string { return filepath.Join(s.Dir, program) }

// Ready is nil if the programs can be started.
func (s Set) Ready() error {
	if _, err := os.Stat(s.Dir); err != nil {
		return fmt.Errorf("%w: %s builds them", ErrNotBuilt, s.group.builder)
	}
	return nil
}

// Build builds what is not there, with low priority, and writes to out how it goes on. Where another process builds, it waits for
// that one. All programs appear at once, when the last is built.
func (s Set) Build(ctx context.Context, out io.Writer) error {
	if s.Ready() == nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.Dir), 0o755); err != nil {
		return err
	}
	lock, err := os.OpenFile(filepath.Join(filepath.Dir(s.Dir), "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return err
	}
	defer lock.Close() // frees it
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return err
	}
	if s.Ready() == nil {
		return nil
	}
	part := s.Dir + ".part" // of one that was interrupted, too
	defer os.RemoveAll(part)
	if err := os.RemoveAll(part); err != nil {
		return err
	}
	for i, p := range s.group.programs {
		fmt.Fprintf(out, "building %s %s (%d of %d; the first takes minutes)\n", p, s.Version, i+1, len(s.group.programs))
		if err := s.build(ctx, out, p, filepath.Join(part, p)); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return os.Rename(part, s.Dir)
}

func (s Set) build(ctx context.Context, out io.Writer, program, to string) error {
	args := append([]string{"-n", "10", "go", "build"}, s.flags...)
	cmd := exec.CommandContext(ctx, "nice", append(args, "-o", to, cmp.Or(s.group.packages[program], "./cmd/"+program))...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = s.source, out, out
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	begin := time.Now()
	if err := cmd.Run(); err != nil {
		return err
	}
	st, err := os.Stat(to)
	if err != nil {
		return err
	}
	used := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	fmt.Fprintf(out, "built %s: %d MB in %v, of which %v of processor time\n", program, st.Size()>>20, time.Since(begin).Round(time.Second), used.Round(time.Second))
	return nil
}
