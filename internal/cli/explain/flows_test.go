package explain_test

import (
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/dataplane/flows"
)

// agentWith is the socket of an agent that had these flows, and reports the later ones once a client follows; then it ends.
func agentWith(t *testing.T, had, later []flows.Flow) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last, err := strconv.Atoi(r.URL.Query().Get("last"))
		if err != nil || r.URL.Path != "/flows" {
			t.Errorf("asked for %s", r.URL)
		}
		if r.URL.Query().Get("logged") != "" {
			f := dropped(1, "NetworkPolicy/prod/a")
			f.Logged, f.Prefix, f.Reason = true, "calico-packet", "logged"
			had = []flows.Flow{f}
		}
		say := had[len(had)-min(last, len(had)):]
		if r.URL.Query().Get("follow") != "" {
			say = append(say[:len(say):len(say)], later...)
		}
		for _, f := range say {
			_ = json.NewEncoder(w).Encode(f)
		}
	}))
	server.Listener.Close()
	var err error
	if server.Listener, err = net.Listen("unix", path); err != nil {
		t.Fatal(err)
	}
	server.Start()
	t.Cleanup(server.Close)
	return path
}

// dropped is a flow of second n, to port n, of a policy.
func dropped(n int, policy string) flows.Flow {
	return flows.Flow{
		Time: time.Date(2026, 11, 21, 12, 0, n, 0, time.UTC), Reason: "rule", Endpoint: "prod/db", Dir: "Ingress", Tier: "default", Policy: policy, Rule: 1,
		Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), From: "prod/web", To: "prod/db", Proto: 6, SrcPort: 999, DstPort: uint16(n),
	}
}

func TestFlowsShowTheLastOfWhatIsAskedFor(t *testing.T) {
	a, b := "NetworkPolicy/prod/a", "GlobalNetworkPolicy/b"
	allowed := dropped(7, a)
	allowed.Allowed, allowed.To = true, ""
	staged := dropped(8, a)
	staged.Staged = &flows.Would{Allowed: true, Reason: "rule", Policy: "StagedNetworkPolicy/prod/s", Dir: "Ingress"}
	path := agentWith(t, []flows.Flow{dropped(1, a), dropped(2, b), dropped(3, a), dropped(4, b), dropped(5, b), dropped(6, b), allowed, staged}, []flows.Flow{dropped(9, b), dropped(10, a)})
	for _, tt := range []struct {
		args, want string // ports
	}{
		{"", "1 2 3 4 5 6 8"},
		{"--last 2", "6 8"},
		{"--last 0", ""},
		{"--last 2 --policy prod/a", "3 8"}, // although four of b came in between
		{"--last 1 --policy globalnetworkpolicy", "6"},
		{"--policy stagednetworkpolicy/prod/s", "8"},
		{"--allowed --last 2", "7 8"},
		{"--staged", "8"},
		{"--from prod/web --to 10.0.0.2 --allowed --last 3", "6 7 8"},
		{"--to prod/db --allowed --last 3", "5 6 8"},
		{"--to prod/other", ""},
		{"--follow --last 1", "8 9 10"},
		{"--follow --last 1 --policy globalnetworkpolicy/b", "6 9"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			args := append([]string{"flows", "--socket", path, "--no-names", "-o", "json"}, strings.Fields(tt.args)...)
			code, out, errs := newCLI(t).Run("", args...)
			var ports []string
			for line := range strings.Lines(out) {
				var f flows.Flow
				if err := json.Unmarshal([]byte(line), &f); err != nil {
					t.Fatal(err)
				}
				ports = append(ports, strconv.Itoa(int(f.DstPort)))
			}
			if got := strings.Join(ports, " "); code != 0 || got != tt.want {
				t.Errorf("exit %d, ports %q, want %q\n%s", code, got, tt.want, errs)
			}
		})
	}
}

func TestAFlowIsALine(t *testing.T) {
	end := dropped(2, "NetworkPolicy/prod/a")
	end.Reason, end.Rule, end.Changed = "end of tier", -1, true
	alone := dropped(3, "")
	alone.Reason, alone.Rule, alone.Tier, alone.Proto, alone.SrcPort, alone.DstPort, alone.ICMPType, alone.From = "spoofed source", -1, "", 1, 0, 0, 8, ""
	staged := dropped(8, "NetworkPolicy/prod/a")
	staged.Allowed, staged.Missed = true, 12
	staged.Staged = &flows.Would{Reason: "rule", Policy: "StagedNetworkPolicy/prod/s", Dir: "Ingress", Tier: "t", Endpoint: "prod/db"}
	path := agentWith(t, []flows.Flow{dropped(1, "NetworkPolicy/prod/a"), end, alone, staged}, nil)
	_, out, _ := newCLI(t).Run("", "flows", "--socket", path, "--no-names", "--allowed")
	out = regexp.MustCompile(`(?m)^\d\d:\d\d:\d\d\.\d{3}`).ReplaceAllString(out, "TIME")
	clitest.Equal(t, out, `TIME  DENY   prod/web (10.0.0.1:999) -> prod/db (10.0.0.2:1)  tcp  by networkpolicy/prod/a ingress[1] in tier default, ingress of prod/db
TIME  DENY   prod/web (10.0.0.1:999) -> prod/db (10.0.0.2:2)  tcp  by the end of tier, last policy networkpolicy/prod/a in tier default, ingress of prod/db  (the policy has changed since)
TIME  DENY   10.0.0.1 -> prod/db (10.0.0.2)  icmp/8/0  since spoofed source, ingress of prod/db
12 flows came faster than they were read, and are not shown
TIME  ALLOW  prod/web (10.0.0.1:999) -> prod/db (10.0.0.2:8)  tcp  by networkpolicy/prod/a ingress[1] in tier default, ingress of prod/db
              staged policies would deny: by stagednetworkpolicy/prod/s ingress[0] in tier t, ingress of prod/db
`)
}

func TestFlowsSaySoIfThereAreNone(t *testing.T) {
	code, out, errs := newCLI(t).Run("", "flows", "--socket", agentWith(t, nil, nil), "--no-names")
	if code != 0 || out != "" || !strings.Contains(errs, "no flows: nothing was dropped") {
		t.Errorf("exit %d: %s%s", code, out, errs)
	}
	code, _, errs = newCLI(t).Run("", "flows", "--socket", "/nonexistent/agent.sock", "--no-names")
	if code != 1 || !strings.Contains(errs, "start it with `twill node`") {
		t.Errorf("exit %d: %s", code, errs)
	}
}

func TestWhatLogRulesReportIsShownApart(t *testing.T) {
	path := agentWith(t, []flows.Flow{dropped(2, "NetworkPolicy/prod/b")}, nil)
	args := []string{"flows", "--socket", path, "--no-names", "--log"}
	_, out, _ := newCLI(t).Run("", args...)
	if want := "LOG    prod/web (10.0.0.1:999) -> prod/db (10.0.0.2:1)  tcp  calico-packet: by networkpolicy/prod/a ingress[1] in tier default, ingress of prod/db\n"; !strings.HasSuffix(out, want) || strings.Count(out, "\n") != 1 {
		t.Errorf("it shows\n%s, want\n%s", out, want)
	}
	_, out, _ = newCLI(t).Run("", append(args, "-o", "json")...)
	if strings.Contains(out, "allowed") || !strings.Contains(out, `"logged":true,"prefix":"calico-packet"`) {
		t.Errorf("as JSON: %s", out)
	}
	if _, out, errs := newCLI(t).Run("", append(args, "--policy", "networkpolicy/prod/other")...); out != "" || !strings.Contains(errs, "no rule with action Log matched") {
		t.Errorf("of another policy: %s%s", out, errs)
	}
	for _, other := range []string{"--allowed", "--staged"} {
		if code, _, errs := newCLI(t).Run("", append(args, other)...); code != 2 || !strings.Contains(errs, "flows --help") {
			t.Errorf("with %s: exit %d: %s", other, code, errs)
		}
	}
}
