package explain_test

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/api"
)

func TestStatusOfAllNodesIsWhatTheyLastReported(t *testing.T) {
	c := newCLI(t)
	for key, value := range map[string]string{
		"no-region/host/h1/status":                                    `{"time":"2026-11-21T10:00:30Z","uptime":60,"first_update":false,"ready":true,"version":"v1"}`,
		"no-region/host/h1/last_reported_status":                      `{"time":"2026-11-21T10:00:30Z","uptime":60,"first_update":false,"ready":true,"version":"v1"}`,
		"no-region/host/h1/workload/k8s/prod%2fweb/endpoint/eth0":     `{"status":"up"}`,
		"no-region/host/h1/workload/k8s/prod%2fdb/endpoint/eth0":      `{"status":"error","reason":"x"}`,
		"region-west/host/h2/last_reported_status":                    `{"time":"2026-11-21T09:00:00Z","uptime":1,"first_update":true}`,
		"region-west/host/h2/workload/openstack/p%2fvm/endpoint/tap0": `not JSON`,
		"no-region/neutron_election":                                  `{}`,
	} {
		if _, err := c.Store.Create(t.Context(), api.Update{Key: "/calico/felix/v2/" + key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	code, out, _ := c.Run("", "status", "--all")
	want := `NODE  AGENT   LAST REPORT           VERSION  UP  DOWN  ERROR  ERRORS OF THE HOST
h1    ready   2026-11-21T10:00:30Z  v1       1   0     1
h2    silent  2026-11-21T09:00:00Z           0   0     0
`
	if code != 1 || out != want {
		t.Errorf("exit %d\n%s\nwant 1\n%s", code, out, want)
	}
}

func TestStatusWithoutAnAgentSaysWhatToDo(t *testing.T) {
	code, _, errs := newCLI(t).Run("", "status", "--socket", "/nonexistent/agent.sock")
	if code != 1 || !strings.Contains(errs, "start it with `twill node`") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, errs = newCLI(t).Run("", "doctor", "--fix", "all"); code != 2 || !strings.Contains(errs, "--fix all: there is only --fix leftovers") {
		t.Errorf("exit %d: %s", code, errs)
	}
	if code, _, errs = newCLI(t).Run("", "status", "-o", "xml"); code != 2 || !strings.Contains(errs, "want table, wide, json, yaml") {
		t.Errorf("exit %d: %s", code, errs)
	}
}
