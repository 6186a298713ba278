package caliconode

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/console"
)

// TestACompleteStartSaysThatThereIsANetwork: once the agent is ready, and not before; upstream's controllers leave it to the node.
func TestACompleteStartSaysThatThereIsANetwork(t *testing.T) {
	const down = `{"type":"Ready","status":"True"},{"type":"NetworkUnavailable","status":"True","reason":"CalicoIsDown"}`
	for _, tt := range []struct {
		name, backend, conditions string
		agent, cluster            int   // HTTP status of what they answer
		refused                   []int // of writes, before one is taken
		writes                    int
		code                      int
		says                      string
	}{
		{"it was down", "vxlan", down, 200, 200, nil, 1, 0, ""},
		{"nobody said anything", "vxlan", "", 200, 200, nil, 1, 0, ""},
		{"another wrote the node, and the server was away", "vxlan", down, 200, 200, []int{409, 503, 500}, 4, 0, ""},
		{"an account that may only read", "vxlan", down, 200, 200, []int{403}, 1, 1, "twill kube node"},
		{"it is said already", "vxlan", `{"type":"NetworkUnavailable","status":"False","reason":"CalicoIsUp"}`, 200, 200, nil, 0, 0, ""},
		{"the agent is not ready", "vxlan", down, 503, 200, nil, 0, 1, "node kube-h1 has a network: the agent is not ready"},
		{"the speaker is not there", "bird", down, 200, 200, nil, 0, 1, "node kube-h1 has a network: BGP does not answer"},
		{"another plugin's network", "none", down, 200, 200, nil, 0, 0, ""},
		{"an account without the right", "vxlan", down, 200, 403, nil, 0, 1, "say that node kube-h1 has a network: read /api/v1/nodes/kube-h1: not authorized: user node cannot get nodes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			alone(t)
			was, wasEach := readyWithin, lookEach
			t.Cleanup(func() { readyWithin, lookEach = was, wasEach })
			lookEach = 0
			if tt.code != 0 {
				readyWithin = 0 // one look
			}
			agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(tt.agent) }))
			defer agent.Close()
			var wrote []string
			cluster := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				switch {
				case tt.cluster != http.StatusOK:
					refuse(w, tt.cluster, "user node cannot get nodes")
					return
				case r.Method == http.MethodPatch:
					body, _ := io.ReadAll(r.Body)
					wrote = append(wrote, r.URL.Path+" "+string(body))
					if len(wrote) <= len(tt.refused) {
						refuse(w, tt.refused[len(wrote)-1], "not now")
						return
					}
				}
				_, _ = fmt.Fprintf(w, `{"kind":"Node","apiVersion":"v1","metadata":{"name":"kube-h1","uid":"u","resourceVersion":"5"},"status":{"conditions":[%s]}}`, tt.conditions)
			}))
			defer cluster.Close()
			for name, value := range map[string]string{
				"DATASTORE_TYPE": "kubernetes", "K8S_API_ENDPOINT": cluster.URL, "K8S_API_TOKEN": "t", "CALICO_K8S_NODE_REF": "kube-h1", "CALICO_NETWORKING_BACKEND": tt.backend,
				"FELIX_HEALTHHOST": "127.0.0.1", "FELIX_HEALTHPORT": agent.URL[strings.LastIndex(agent.URL, ":")+1:],
			} {
				t.Setenv(name, value)
			}
			ctx, stop := context.WithCancel(t.Context())
			code, out := callUntil(ctx, "there is nothing more to do", stop, "calico-node", "-complete-startup")
			if tt.code == 0 && ctx.Err() == nil {
				t.Error("it ended by itself: a supervisor starts it again, each second")
			}
			stop()
			if code != tt.code || !strings.Contains(out, tt.says) || len(wrote) != tt.writes {
				t.Errorf("exit code %d, %q, wrote %q, want %d, %q, and %d writes", code, out, wrote, tt.code, tt.says, tt.writes)
			}
			for _, w := range wrote {
				if !strings.HasPrefix(w, "/api/v1/nodes/kube-h1/status ") || !strings.Contains(w, `"status":"False","type":"NetworkUnavailable"`) {
					t.Errorf("wrote %s", w)
				}
				if tt.conditions != "" && !strings.Contains(w, `"Ready"`) {
					t.Errorf("another condition is gone: %s", w)
				}
			}
		})
	}
}

// refuse answers as an API server that does not do what it was asked.
func refuse(w http.ResponseWriter, code int, message string) {
	reason := map[int]string{403: "Forbidden", 409: "Conflict", 500: "InternalError", 503: "ServiceUnavailable"}[code]
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q,"message":%q}`, code, reason, message)
}

// callUntil is call, and tells it to end soon after it has logged a text.
func callUntil(ctx context.Context, text string, stop func(), args ...string) (code int, out string) {
	log := &watchedLog{text: text, stop: func() { time.AfterFunc(50*time.Millisecond, stop) }}
	e := clitest.Env(console.Stdio{In: strings.NewReader(""), Out: log, Err: log})
	code = Run(ctx, e, nil, nil, args)
	return code, log.b.String()
}

// watchedLog is what a command prints.
type watchedLog struct {
	b    bytes.Buffer
	text string
	stop func()
}

func (w *watchedLog) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte(w.text)) {
		w.stop()
	}
	return w.b.Write(p)
}
