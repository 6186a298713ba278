package caliconode

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestACompleteStartSaysThatThereIsANetwork: once the agent is ready, and not before; upstream's controllers leave it to the node.
func TestACompleteStartSaysThatThereIsANetwork(t *testing.T) {
	const down = `{"type":"Ready","status":"True"},{"type":"NetworkUnavailable","status":"True","reason":"CalicoIsDown"}`
	for _, tt := range []struct {
		name, backend, conditions string
		agent, cluster            int // HTTP status of what they answer
		writes                    int
		code                      int
		says                      string
	}{
		{"it was down", "vxlan", down, 200, 200, 1, 0, ""},
		{"nobody said anything", "vxlan", "", 200, 200, 1, 0, ""},
		{"it is said already", "vxlan", `{"type":"NetworkUnavailable","status":"False","reason":"CalicoIsUp"}`, 200, 200, 0, 0, ""},
		{"the agent is not ready", "vxlan", down, 503, 200, 0, 1, "node kube-h1 has a network: the agent is not ready"},
		{"the speaker is not there", "bird", down, 200, 200, 0, 1, "node kube-h1 has a network: BGP does not answer"},
		{"another plugin's network", "none", down, 200, 200, 0, 0, ""},
		{"an account without the right", "vxlan", down, 200, 403, 0, 1, "say that node kube-h1 has a network: read /api/v1/nodes/kube-h1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			alone(t)
			was := readyWithin
			t.Cleanup(func() { readyWithin = was })
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
					w.WriteHeader(tt.cluster)
					_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"user node cannot get nodes"}`)
					return
				case r.Method == http.MethodPatch:
					body, _ := io.ReadAll(r.Body)
					wrote = append(wrote, r.URL.Path+" "+string(body))
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
			_, code, out := call(t.Context(), "calico-node", "-complete-startup")
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
