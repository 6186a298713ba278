package caliconode

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/resources"
)

// TestAStartThatMayNotReadEndsAndSaysWhat: a supervisor starts it again once somebody has given it the right.
func TestAStartThatMayNotReadEndsAndSaysWhat(t *testing.T) {
	alone(t)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusForbidden)
		_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"user node may not %s %s"}`, r.Method, r.URL.Path)
	}))
	defer srv.Close()
	for name, value := range map[string]string{"DATASTORE_TYPE": "kubernetes", "K8S_API_ENDPOINT": srv.URL, "K8S_API_TOKEN": "t", "CALICO_API_GROUP": string(form.V3), "IP": "none"} {
		t.Setenv(name, value)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	_, code, out := call(ctx, "calico-node", "-startup")
	if code != 1 || ctx.Err() != nil {
		t.Errorf("exit code %d, %v: want 1 at once", code, ctx.Err())
	}
	for _, part := range []string{"user node may not GET ", "twill kube node"} {
		if !strings.Contains(out, part) {
			t.Errorf("it says %s, want %q", out, part)
		}
	}
}

// TestWhatInstallersLeaveInAClusterIsRead, as an API server answers: kubeadm's ConfigMap has the ranges of pods in YAML in a text.
func TestWhatInstallersLeaveInAClusterIsRead(t *testing.T) {
	const text = `"kind: ClusterConfiguration\nnetworking:\n  dnsDomain: cluster.local\n  podSubnet: \"10.244.0.9/16, fd00:244::/56,nonsense\"\n  serviceSubnet: 10.96.0.0/12\n"`
	has := map[string]string{
		"kubeadm-config":     `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"kubeadm-config"},"data":{"ClusterConfiguration":` + text + `}}`,
		"full-cluster-state": `{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"full-cluster-state"}}`,
	}
	for _, tt := range []struct {
		name   string
		status map[string]int // of a ConfigMap; none: 200
		want   string
	}{
		{"both", nil, "[kubeadm rancher] [10.244.0.0/16 fd00:244::/56]"},
		{"neither", map[string]int{"kubeadm-config": http.StatusNotFound, "full-cluster-state": http.StatusNotFound}, "[] []"},
		{"one that this account may not read", map[string]int{"kubeadm-config": http.StatusForbidden}, "[rancher] []"},
		{"a server that cannot answer, for now", map[string]int{"kubeadm-config": http.StatusInternalServerError}, "it passes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			mux := http.NewServeMux()
			for name, body := range has {
				mux.HandleFunc("/api/v1/namespaces/kube-system/configmaps/"+name, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", "application/json")
					if code := tt.status[name]; code != 0 {
						w.WriteHeader(code)
						_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"reason":%q}`, code, map[int]string{404: "NotFound", 403: "Forbidden", 500: "InternalError"}[code])
						return
					}
					_, _ = w.Write([]byte(body))
				})
			}
			srv := httptest.NewServer(mux)
			defer srv.Close()
			k, err := installedBy(t.Context(), datastore.Config{Type: "kubernetes", Server: srv.URL})
			got := fmt.Sprint(k.Types, " ", k.Subnets)
			if resources.Passes(err) {
				got = "it passes"
			}
			if got != tt.want {
				t.Errorf("%s (%v), want %s", got, err, tt.want)
			}
		})
	}
}
