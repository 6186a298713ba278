package config_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
)

// TestSettingsOfRoutes: what is wrong counts as not given, and is a problem.
func TestSettingsOfRoutes(t *testing.T) {
	get := func(s config.Settings) string {
		return fmt.Sprint(s.ChecksumsBroken, s.ExternalNodes, s.Routes.Off, s.Routes.RemoveExternal, s.Routes.Source, s.Routes.Metric, s.Routes.Elevated, s.Routes.Settle, s.Routes.Protocol, s.Routes.Cluster)
	}
	const none = "[] false true [invalid IP invalid IP] [0 0] [512 512] 30s 80EnabledIPIPOnly"
	for _, tt := range []struct {
		spec, want string
		problems   int
	}{
		{`{}`, none, 0},
		{`{"featureDetectOverride":"SNATFullyRandom=true, checksumOffloadBroken=True"}`, "true" + none, 0},
		{`{"featureDetectOverride":"ChecksumOffloadBroken=maybe"}`, none, 1},
		{
			`{"externalNodesList":["198.51.100.9/24","192.0.2.7","198.51.100.0/24"],"programClusterRoutes":"enabled"}`,
			"[192.0.2.7/32 198.51.100.0/24] false true [invalid IP invalid IP] [0 0] [512 512] 30s 80Enabled", 0,
		},
		{`{"externalNodesList":["x"],"ipv4NormalRoutePriority":2048,"deviceRouteSourceAddress":"fd00::1","deviceRouteProtocol":186}`, none, 4},
		{
			`{"routeSyncDisabled":true,"removeExternalRoutes":false,"deviceRouteSourceAddress":"192.0.2.1","deviceRouteSourceAddressIPv6":"fd00::1","ipv6NormalRoutePriority":9,"ipv6ElevatedRoutePriority":5,"liveMigrationRouteConvergenceTime":"60s","deviceRouteProtocol":3}`,
			"[] true false [192.0.2.1 fd00::1] [0 9] [512 5] 1m0s 3EnabledIPIPOnly", 0,
		},
		{`{"ipv4NormalRoutePriority":300,"ipv6ElevatedRoutePriority":1024}`, "[] false true [invalid IP invalid IP] [300 0] [0 0] 30s 80EnabledIPIPOnly", 2},
		{`{"ipv4NormalRoutePriority":300,"ipv4ElevatedRoutePriority":299,"ipv6ElevatedRoutePriority":0}`, "[] false true [invalid IP invalid IP] [300 0] [299 512] 30s 80EnabledIPIPOnly", 1},
	} {
		r := config.New("h1")
		f := api.FelixConfiguration{Object: api.Object{Metadata: api.ObjectMeta{Name: "default"}}}
		if err := json.Unmarshal([]byte(tt.spec), &f.Spec); err != nil {
			t.Fatal(err)
		}
		r.Set(&f)
		e := r.Resolve()
		if got := get(e.Settings); got != tt.want || len(e.Problems) != tt.problems {
			t.Errorf("%s:\n got %s, %v\nwant %s, %d problems", tt.spec, got, e.Problems, tt.want, tt.problems)
		}
	}
}
