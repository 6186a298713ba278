package podtest

import (
	"bufio"
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"testing"
)

// load is what service accounts have asked of the API server, by its audit log.
type load struct {
	requests map[string]int // by verb, each once, watches among them
	refused  int            // of them: who asks too much, or may not
}

// total counts all requests that are no watch.
func (l load) total() (n int) {
	for verb, of := range l.requests {
		if verb != "watch" {
			n += of
		}
	}
	return n
}

// since is what came after an earlier look.
func (l load) since(before load) load {
	out := load{requests: map[string]int{}, refused: l.refused - before.refused}
	for verb, n := range l.requests {
		out.requests[verb] = n - before.requests[verb]
	}
	return out
}

// loadOf reads the log. A request has a line for each stage: a watch one when it begins and one when it ends.
func loadOf(t testing.TB, log string) load {
	t.Helper()
	f, err := os.Open(log)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	out, seen := load{requests: map[string]int{}}, map[string]bool{}
	lines := bufio.NewScanner(f)
	for lines.Buffer(nil, 1<<20); lines.Scan(); {
		var r struct {
			AuditID, Verb string
			Response      struct{ Code int } `json:"responseStatus"`
		}
		if json.Unmarshal(lines.Bytes(), &r) != nil || seen[r.AuditID] {
			continue // the last line, which is being written, or a later stage
		}
		seen[r.AuditID] = true
		out.requests[r.Verb]++
		if r.Response.Code == http.StatusForbidden || r.Response.Code == http.StatusTooManyRequests {
			out.refused++
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return out
}

// heap is how much of Go's heap the agent has in use, in MB, what is garbage and was not collected yet included.
func (n *node) heap() float64 {
	n.t.Helper()
	client := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", n.socket)
		},
	}}
	resp, err := client.Get("http://agent/metrics")
	if err != nil {
		n.t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if text, ok := strings.CutPrefix(lines.Text(), "go_memstats_heap_inuse_bytes "); ok {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				n.t.Fatal(err)
			}
			return v / 1e6
		}
	}
	n.t.Fatal("the agent does not say how large its heap is")
	return 0
}
