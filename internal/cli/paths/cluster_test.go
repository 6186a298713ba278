package paths

import (
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/clustercheck"
)

// TestTheTableOfACluster has a line for each test, and below it one for each try that failed.
func TestTheTableOfACluster(t *testing.T) {
	found := []clustercheck.Result{
		{Test: "node takes part", From: "n4", Result: clustercheck.Skipped, Detail: "it is not Ready"},
		{Test: "TCP", From: "n1", To: "n2", Result: clustercheck.OK, Took: 1234567 * time.Nanosecond},
		{Test: "UDP", From: "n1", To: "n2", Result: clustercheck.Failed, Detail: "i/o timeout"},
		{Test: "TCP", From: "n2", To: "n1", Result: clustercheck.OK, Took: 2345 * time.Millisecond},
		{Test: "UDP", From: "n2", To: "n1", Result: clustercheck.OK, Took: time.Millisecond},
		{Test: "size", From: "n1", To: "n2", Result: clustercheck.OK, Took: time.Millisecond, Detail: "1500 bytes"},
		{Test: "size", From: "n2", To: "n1", Result: clustercheck.OK, Took: time.Millisecond, Detail: "1500 bytes"},
	}
	for _, tt := range []struct {
		name       string
		rows       []clustercheck.Result
		wide       bool
		want, none []string
	}{
		{"all", found, false, []string{
			"TEST RESULT SLOWEST DETAIL", "node takes part skipped - n4 it is not Ready", "TCP ok 2 2.35s -", "UDP FAILED 1 of 2 1ms below", "size ok 2 1ms 1500 bytes",
			"UDP: from n1 to n2: i/o timeout", "twill check cluster --keep",
		}, []string{"from n2"}},
		{"wide", found, true, []string{"TEST FROM TO RESULT TOOK DETAIL WHY", "node takes part n4 - skipped - it is not Ready -", "TCP n1 n2 ok 1.23ms -", "UDP n1 n2 failed - i/o timeout -"}, []string{"below"}},
		{"with what to ask", []clustercheck.Result{{Test: "UDP", From: "n1", To: "n2", Result: clustercheck.Failed, Detail: "i/o timeout", Why: "twill why ns/a-0 ns/b-1 udp/8080"}}, false, []string{
			"UDP: from n1 to n2: i/o timeout\ntwill why ns/a-0 ns/b-1 udp/8080", "Then delete the namespace",
		}, []string{"--keep"}},
		{"nothing failed", found[:2], false, []string{"TCP ok 1 1.23ms -"}, []string{"--keep"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out strings.Builder
			if err := printTried(&out, tt.rows, tt.wide); err != nil {
				t.Fatal(err)
			}
			var lines []string
			for line := range strings.Lines(out.String()) {
				lines = append(lines, strings.Join(strings.Fields(line), " "))
			}
			text := strings.Join(lines, "\n")
			for _, want := range tt.want {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in\n%s", want, text)
				}
			}
			for _, none := range tt.none {
				if strings.Contains(text, none) {
					t.Errorf("%q is in\n%s", none, text)
				}
			}
		})
	}
}
