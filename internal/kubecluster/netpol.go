package kubecluster

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/twillnet/twill/internal/image"
	"github.com/twillnet/twill/internal/kubetest/binaries"
)

// NetpolSample is a focus that has a fixed part of the cases: of each part of a NetworkPolicy one.
const NetpolSample = `Netpol API|default-deny-ingress|default-deny-all|PodSelector or NamespaceSelector|based on Ports|` +
	`egress access on one named port|ingress access to updated pod|except clause|stop enforcing policies|by TCP when a policy specifies only UDP`

// without are the cases that a machine cannot run, by what they have in their names, and why.
var without = []struct {
	name, reason string
	lacks        func() bool
}{
	{"SCTPConnectivity", "the kernel has no SCTP", lacksSCTP},
}

func lacksSCTP() bool {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, syscall.IPPROTO_SCTP)
	if err == nil {
		syscall.Close(fd)
	}
	return errors.Is(err, syscall.EPROTONOSUPPORT)
}

// netpolCase is one case as the suite reports it (the JSON report of Ginkgo).
type netpolCase struct {
	Containers []string      `json:"ContainerHierarchyTexts"`
	Text       string        `json:"LeafNodeText"`
	Kind       string        `json:"LeafNodeType"`
	State      string        // such as passed
	Took       time.Duration `json:"RunTime"`
	Failure    struct{ Message string }
}

// NetworkPolicies runs Kubernetes' own tests of NetworkPolicies on the cluster, which is up: the cases whose names the regular expression
// focus matches, all if it is empty. It writes what became of each; a case that fails is an error, and so is a run without cases.
// Images come from no registry: the pods' program is that of the same version, which each node is given under the name that the suite asks for.
func (c *Cluster) NetworkPolicies(ctx context.Context, focus string) error {
	c.defaults()
	suite, err := binaries.E2E.Find()
	if err == nil {
		err = suite.Ready()
	}
	if err != nil {
		return err
	}
	if _, err := os.Stat(c.Kubeconfig()); err != nil {
		return fmt.Errorf("no cluster is up: make kube starts one: %w", err)
	}
	if err := c.importAgnhost(ctx, suite); err != nil {
		return fmt.Errorf("the image of the pods: %w", err)
	}
	report := c.in("netpol.json")
	args := []string{"--kubeconfig=" + c.Kubeconfig(), "--ginkgo.no-color", "--ginkgo.silence-skips", "--ginkgo.focus-file=/netpol/", "--ginkgo.timeout=4h", "--ginkgo.json-report=" + report, "--ginkgo.focus=" + focus}
	for _, w := range without {
		if w.lacks() {
			args = append(args, "--ginkgo.skip="+w.name)
			fmt.Fprintf(c.Out, "Not run: cases with %s in their names: %s\n", w.name, w.reason)
		}
	}
	cmd := exec.CommandContext(ctx, suite.Path("e2e"), args...)
	cmd.Stdout, cmd.Stderr = c.Out, c.Out
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // it removes its namespaces
	cmd.WaitDelay = time.Minute
	ran := cmd.Run()
	b, err := os.ReadFile(report)
	if err != nil {
		return errors.Join(ran, err)
	}
	cases, err := netpolCases(b)
	if err != nil {
		return errors.Join(ran, err)
	}
	return errors.Join(c.tellNetpol(cases), ran)
}

// netpolCases reads the suite's report: what was run, and what failed before it.
func netpolCases(report []byte) (ran []netpolCase, err error) {
	var suites []struct{ SpecReports []netpolCase }
	if err := json.Unmarshal(report, &suites); err != nil {
		return nil, fmt.Errorf("the report of the suite: %w", err)
	}
	for _, s := range suites {
		for _, r := range s.SpecReports {
			if isCase := r.Kind == "It"; r.State != "skipped" && (isCase || r.State != "passed") {
				ran = append(ran, r)
			}
		}
	}
	return ran, nil
}

// tellNetpol writes what became of each case.
func (c *Cluster) tellNetpol(cases []netpolCase) error {
	if len(cases) == 0 {
		return errors.New("no case was run: no name has what the focus asks for, or the suite ended before")
	}
	passed := 0
	for _, r := range cases {
		fmt.Fprintf(c.Out, "%-8s %4.0fs  %s\n", r.State, r.Took.Seconds(), strings.Join(append(r.Containers, r.Text), ": "))
		if r.State == "passed" {
			passed++
			continue
		}
		first, _, _ := strings.Cut(r.Failure.Message, "\n")
		fmt.Fprintf(c.Out, "                %s\n", first)
	}
	fmt.Fprintf(c.Out, "%d of %d cases passed.\n", passed, len(cases))
	if passed < len(cases) {
		return fmt.Errorf("%d of %d cases failed", len(cases)-passed, len(cases))
	}
	return nil
}

// agnhost is the image that the suite's pods run, as -list-images prints it.
var agnhost = regexp.MustCompile(`^(\S+)/(agnhost):(\d+)\.(\d+)(\S*)$`)

// importAgnhost makes the image that the suite wants, and gives it to each node.
func (c *Cluster) importAgnhost(ctx context.Context, suite binaries.Set) error {
	list, err := run(exec.CommandContext(ctx, suite.Path("e2e"), "-list-images"), "")
	if err != nil {
		return err
	}
	program, err := os.ReadFile(suite.Path("agnhost"))
	if err != nil {
		return err
	}
	i, err := agnhostImage(list, program)
	if err != nil {
		return err
	}
	archive, err := i.Archive()
	if err != nil {
		return err
	}
	if err := os.WriteFile(c.imageFile(i.Name), archive, 0o644); err != nil {
		return err
	}
	nodes, err := filepath.Glob(c.in("*", socket))
	if err != nil {
		return err
	}
	for _, at := range nodes {
		node, _, _ := strings.Cut(strings.TrimPrefix(at, c.in()+"/"), "/")
		if err := c.ctr(ctx, node, "images", "import", c.imageFile(i.Name)); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
	}
	return nil
}

// agnhostImage is an image of the program under the newest of its names in a list of images: the older are for tests of upgrades.
func agnhostImage(list string, program []byte) (image.Config, error) {
	var newest []int
	var i image.Config
	for lines := bufio.NewScanner(strings.NewReader(list)); lines.Scan(); {
		m := agnhost.FindStringSubmatch(strings.TrimSpace(lines.Text()))
		if m == nil {
			continue
		}
		major, _ := strconv.Atoi(m[3]) // digits, both
		minor, _ := strconv.Atoi(m[4])
		if slices.Compare([]int{major, minor}, newest) < 0 {
			continue
		}
		newest = []int{major, minor}
		i = image.Config{
			Registry: m[1], Name: m[2], Version: m[3] + "." + m[4] + m[5], Arch: goarch, Time: time.Unix(0, 0), Plain: true, Entrypoint: []string{path.Join("/", m[2])}, Cmd: []string{"pause"},
			Files: []image.File{{Name: m[2], Mode: 0o755, Content: program}, {Name: "tmp/", Mode: 0o1777}},
		}
	}
	if newest == nil {
		return i, fmt.Errorf("the suite asks for no image of agnhost, but for these: %s", strings.Join(strings.Fields(list), ", "))
	}
	return i, nil
}
