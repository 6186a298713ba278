package kubecluster

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/clustercheck"
)

// TestTheClusterIsChecked by `twill check cluster`: all is well; then nothing may go by UDP, and it says so; and of its namespaces nothing is left.
func TestTheClusterIsChecked(t *testing.T) {
	s := newSpace(t)
	if by, code := s.check(); code != 0 || len(by[clustercheck.Failed]) > 0 || len(by[clustercheck.OK]) < 3*10 {
		t.Errorf("exit code %d, failed: %+v, ok: %d", code, by[clustercheck.Failed], len(by[clustercheck.OK]))
	}

	const name = "nothing-by-udp"
	s.apply(`apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: ` + name + `}
spec: {tier: default, order: 1, selector: has(twill.net/check), ingress: [{action: Deny, protocol: UDP}], types: [Ingress]}
`)
	defer func() { s.run("delete", "globalnetworkpolicies.projectcalico.org", name) }()
	by, code := s.check("--settle", "1s")
	udp := 0
	for _, r := range by[clustercheck.Failed] {
		if strings.Contains(r.Test, "UDP") {
			udp++
		}
	}
	if code != 1 || udp != 6 {
		t.Errorf("exit code %d, by UDP %d failed, want 6 of 6: %+v", code, udp, by[clustercheck.Failed])
	}
	awaits(t, "no namespace of a check", func(ctx context.Context) error {
		out, err := s.c.Run(ctx, "get", "namespaces", "-l", "twill.net/check", "-o", "name")
		if err == nil && strings.TrimSpace(out) != "" {
			err = errors.New(out)
		}
		return err
	})
}

// check runs twill check cluster, and returns what it found, by how it went, and its exit code.
func (s space) check(args ...string) (map[string][]clustercheck.Result, int) {
	s.Helper()
	cmd := exec.CommandContext(s.Context(), s.c.Twill, append([]string{"check", "cluster", "-o", "json"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+s.c.Kubeconfig(), "DATASTORE_TYPE=kubernetes")
	var complaint strings.Builder
	cmd.Stderr = &complaint
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.Fatal(err)
	}
	var found []clustercheck.Result
	if err := json.Unmarshal(out, &found); err != nil {
		s.Fatalf("%v: %s%s", err, out, complaint.String())
	}
	by := map[string][]clustercheck.Result{}
	for _, r := range found {
		by[r.Result] = append(by[r.Result], r)
	}
	return by, cmd.ProcessState.ExitCode()
}
