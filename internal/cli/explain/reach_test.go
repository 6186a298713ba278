package explain_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/reach"
)

// TestReachListsWhatWhyAnswers: each port that reach lists has the answer that why gives for a flow to it, by the same rule.
func TestReachListsWhatWhyAnswers(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	var lines []reach.Line
	if err := json.Unmarshal([]byte(c.Want(0, "", "reach", "prod/web", "prod/db", "-o", "json")), &lines); err != nil {
		t.Fatal(err)
	}
	asked := map[bool]int{}
	for _, l := range lines {
		ports, ok := strings.CutPrefix(l.Flows, "tcp/")
		if !ok || l.Direction != "Ingress" || l.Workload != "prod/db" || l.Peer.Is6() {
			continue // over IPv6 the other end denies something, too
		}
		for port := range strings.SplitSeq(ports, ",") {
			code, out, _ := c.Run("", "why", "prod/web", "prod/db", "tcp/"+port, "-4")
			allowed := code == 0
			policy, _, _ := strings.Cut(l.By, " ")
			if allowed != (l.Action == "allow") || allowed && !strings.Contains(out, policy) {
				t.Errorf("%+v\nwhy, of port %s, exit code %d:\n%s", l, port, code, out)
			}
			asked[allowed]++
		}
	}
	if asked[true] == 0 || asked[false] == 0 {
		t.Errorf("of the ports listed %d are allowed and %d not", asked[true], asked[false])
	}
}

// TestReachSaysWhatItCannotList: a peer that nobody knows and an end that is no workload are errors that say so.
func TestReachSaysWhatItCannotList(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	for args, want := range map[string]string{
		"nobody": "nobody", "prod/web 203.0.113.9": "203.0.113.9 is no workload", "prod/web prod/db more": "want PEER [WORKLOAD]",
	} {
		code, _, errs := c.Run("", append([]string{"reach"}, strings.Fields(args)...)...)
		if code == 0 || !strings.Contains(errs, want) {
			t.Errorf("reach %s: exit code %d, %s", args, code, errs)
		}
	}
	if out := c.Want(0, "", "reach", "203.0.113.9"); !strings.Contains(out, "no-telnet ingress[0]") {
		t.Error(fmt.Sprint("an address outside:\n", out))
	}
}
