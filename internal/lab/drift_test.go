package lab

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// TestWhatOthersChangeIsRepaired lets somebody meddle with what is ours, under
// a denied and an allowed flow: with a table that has an owner, and with one
// that is anybody's, as on kernels before 6.9. Each repair is by the mechanism
// that the kernel leaves us, and no denied packet passes while only rules or
// less are gone; what the kernel refuses to others needs no repair.
func TestWhatOthersChangeIsRepaired(t *testing.T) {
	g := newGround(t)
	a, b, c := &g.Spec.Workloads[0], &g.Spec.Workloads[1], &g.Spec.Workloads[2]
	g.put(t, api.KindNetworkPolicy, "demo", "p", `{"selector":"app == \"b\"","ingress":[{"action":"Allow","source":{"namespaceSelector":"team == \"other\""}}]}`)
	g.want(t, "a -> b no", "c -> b yes")
	flow := startTCP(t, g.Lab, c, b, false)
	for _, owned := range []bool{false, true} {
		settings := fmt.Sprintf(`{"interfaceRefreshInterval":%%q,"routeRefreshInterval":"0","nftablesRefreshInterval":"0","nftablesTableOwnerEnabled":%v}`, owned)
		g.put(t, api.KindFelixConfiguration, "", "default", fmt.Sprintf(settings, "0"))
		g.awaitOwner(t, owned)
		denied := []*stream{startUDP(t, g.Lab, a, b, false, false), startUDP(t, g.Lab, a, b, true, false)}
		for _, tt := range driftsOf(b) {
			t.Run(fmt.Sprintf("%s, owned %v", tt.name, owned), func(t *testing.T) {
				if tt.cause == "read-back" { // which would else be quicker than an event, now and then
					g.put(t, api.KindFelixConfiguration, "", "default", fmt.Sprintf(settings, "1s"))
				}
				g.meddle(t, tt.command, tt.cause, owned && strings.HasPrefix(tt.command, "nft "))
				g.want(t, "a -> b no", "c -> b yes")
			})
		}
		if !owned {
			stopAll(t, denied)
		}
		// Without any table nothing guards the way until it is back, which the kernel tells at once.
		for _, command := range []string{"nft delete table inet twill", "nft flush ruleset"} {
			g.meddle(t, command, "event", owned)
			g.want(t, "a -> b no", "c -> b yes")
		}
		if owned {
			stopAll(t, denied)
		}
	}
	flow.stop(t)
}

// drift is what somebody does to our part of the kernel, and what tells us.
type drift struct{ name, command, cause string }

func driftsOf(w *Workload) []drift {
	link := w.link()
	return []drift{
		{"the rules of the table are flushed", "nft flush table inet twill", "event"},
		{"the rules of a stage are flushed", "nft flush chain inet twill forward-to-workload", "event"},
		{"a rule is added", "nft insert rule inet twill wl-guard counter drop", "event"},
		{"an interface is taken out of the set of workloads", "nft delete element inet twill wl-links {" + link + "}", "event"},
		{"a route is deleted", "ip route del " + w.V4.String(), "event"},
		{"an IPv6 route is deleted", "ip -6 route del " + w.V6.String(), "event"},
		{"somebody adds a route of our protocol", "ip route add 198.51.100.7/32 dev " + link + " proto 80", "event"},
		{"the reverse path check is turned off", "sysctl -w net.ipv4.conf." + link + ".rp_filter=0", "event"},
		{"forwarding is turned off", "sysctl -w net.ipv4.ip_forward=0", "event"},
		{"forwarding of IPv6 is turned off", "sysctl -w net.ipv6.conf.all.forwarding=0", "event"},
		{"the gateway's address is deleted", "ip addr del 169.254.1.1/32 dev " + link, "event"},
		{"a setting without an event is changed", "sysctl -w net.ipv4.conf." + link + ".route_localnet=0", "read-back"},
	}
}

// meddle runs a command on h1 and wants a repair by what tells of it; or, where the kernel refuses it or passes our
// table over, none.
func (g *ground) meddle(t *testing.T, command, cause string, refused bool) {
	t.Helper()
	was := g.repairs(t, cause)
	if !refused {
		g.inHost(t, command)
		await(t, "a repair by "+cause, func() bool { return g.repairs(t, cause) > was })
		g.verified(t)
		return
	}
	err := g.tryInHost(command)
	if command == "nft flush ruleset" {
		must(t, err)
	} else if err == nil || !strings.Contains(err.Error(), "Operation not permitted") {
		t.Errorf("%s: %v", command, err)
	}
	g.verified(t)
	g.beat(t)
	if now := g.repairs(t, cause); now != was {
		t.Errorf("%d repairs after %s, which the kernel refuses", now-was, command)
	}
}

// awaitOwner waits until the table has an owner, or none.
func (g *ground) awaitOwner(t *testing.T, owned bool) {
	t.Helper()
	await(t, fmt.Sprintf("the table has an owner: %v", owned), func() bool {
		return inside(g.Spec.hostNS(g.Spec.Hosts[0]), func() error {
			conn, err := nftables.Open()
			if err != nil {
				return err
			}
			defer conn.Close()
			rs, err := conn.Outline(kernel.TableName)
			if err == nil && (rs.Table.Owner != 0) != owned {
				err = errors.New("not yet")
			}
			return err
		}) == nil
	})
}

func stopAll(t *testing.T, streams []*stream) {
	t.Helper()
	for _, s := range streams {
		s.stop(t)
	}
}

// inHost runs a command on host h1.
func (g *ground) inHost(t *testing.T, command string) {
	t.Helper()
	must(t, g.tryInHost(command))
}

// tryInHost runs a command on host h1; what it printed is in the error.
func (g *ground) tryInHost(command string) error {
	args := strings.Fields(command)
	return inside(g.Spec.hostNS(g.Spec.Hosts[0]), func() error {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", command, err, out)
		}
		return nil
	})
}

// repairs counts those of h1's agent, by cause, as its metrics do.
func (g *ground) repairs(t *testing.T, cause string) (n int) {
	t.Helper()
	for _, driver := range []string{"nft", "fib", "host"} {
		n += g.metric(t, fmt.Sprintf("twill_dataplane_repairs_total{cause=%q,driver=%q}", cause, driver))
	}
	return n
}

// metric is one of h1's agent; zero if there is none of that name and labels.
func (g *ground) metric(t *testing.T, name string) int {
	t.Helper()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", g.AgentSocket("h1"))
	}}}
	resp, err := client.Get("http://agent/metrics")
	must(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	must(t, err)
	for line := range strings.SplitSeq(string(body), "\n") {
		if value, ok := strings.CutPrefix(line, name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			must(t, err)
			return int(n)
		}
	}
	return 0
}

// fetch reads what is served on h1 at host:port/path; nothing if nobody answers so.
func (g *ground) fetch(at string) (body string) {
	_ = inside(g.Spec.hostNS(g.Spec.Hosts[0]), func() error {
		address, path, _ := strings.Cut(at, "/")
		c, err := net.DialTimeout("tcp", address, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		if _, err := fmt.Fprintf(c, "GET /%s HTTP/1.0\r\nHost: h1\r\n\r\n", path); err != nil {
			return err
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if b, err := io.ReadAll(resp.Body); err == nil && resp.StatusCode == http.StatusOK {
			body = string(b)
		}
		return nil
	})
	return body
}

// awaitLog waits until the log of h1 has a text so many times.
func (g *ground) awaitLog(t *testing.T, text string, times int) {
	t.Helper()
	await(t, text, func() bool {
		log, err := os.ReadFile(filepath.Join(g.Dir, "h1", "node.log"))
		return err == nil && strings.Count(string(log), text) >= times
	})
}

// killAgent kills h1's and waits for the next.
func (g *ground) killAgent(t *testing.T) {
	t.Helper()
	old := g.agentPID(g.Spec.Hosts[0])
	must(t, syscall.Kill(old, syscall.SIGKILL))
	await(t, "another agent runs", func() bool { pid := g.agentPID(g.Spec.Hosts[0]); return pid != 0 && pid != old })
}

// verified wants the kernel to be what the datastore asks for.
func (g *ground) verified(t *testing.T) {
	t.Helper()
	var out string
	err := inside(g.Spec.hostNS(g.Spec.Hosts[0]), func() error {
		b, err := exec.Command(g.Exe, "verify", "--node", "h1", "--etcd", g.Socket(), "--patience", "1m").CombinedOutput()
		out = string(b)
		return err
	})
	if err != nil {
		t.Errorf("twill verify: %v\n%s", err, out)
	}
}

// TestEverySettingIsLive changes each setting that the page calls live, one at
// a time and all at once, under traffic: no packet is lost, and the agent is
// the one that was there before.
func TestEverySettingIsLive(t *testing.T) {
	g := newGround(t)
	a, b := &g.Spec.Workloads[0], &g.Spec.Workloads[1]
	other := map[string]string{
		"interfacePrefix": `"cali,tap"`, "defaultEndpointToHostAction": `"Accept"`, "allowVXLANPacketsFromWorkloads": `true`,
		"allowIPIPPacketsFromWorkloads": `true`, "disableConntrackInvalidCheck": `true`, "workloadSourceSpoofing": `"Any"`, "serviceLoopPrevention": `"Reject"`, "localSubnetL2Reachability": `"PodsAndLoadBalancers"`, "localSubnetL2ReachabilityRefreshInterval": `"1m"`,
		"nftablesRefreshInterval": `"2s"`, "iptablesRefreshInterval": `"2s"`, "routeRefreshInterval": `"2s"`, "ipsetsRefreshInterval": `"2s"`, "interfaceExclude": `"/^kube/,dummy0"`, "ipv6Support": `false`, "ipForwarding": `"Disabled"`, "floatingIPs": `"Enabled"`, "metadataAddr": `"172.30.0.1"`, "metadataPort": `8776`, "interfaceRefreshInterval": `"2s"`, "logSeverityScreen": `"Debug"`, "logFilePath": `"/run/twill-drift.log"`, "endpointStatusPathPrefix": `"/run/twill-drift"`, "policySyncPathPrefix": `"/run/twill-drift"`, "logSeverityFile": `"Error"`, "logSeveritySys": `"Error"`, "logDebugFilenameRegex": `"."`, "debugDisableLogDropping": `true`, "debugMemoryProfilePath": `"/run/twill-drift.pprof"`, "usageReportingEnabled": `false`, "usageReportingInitialDelay": `"1s"`, "usageReportingInterval": `"1h"`,
		"openstackRegion": `"west"`, "reportingInterval": `"1s"`, "reportingTTL": `"5s"`, "endpointReportingEnabled": `false`,
		"endpointReportingDelay": `"2s"`, "healthEnabled": `false`, "healthHost": `"127.0.0.1"`, "healthPort": `9199`,
		"prometheusMetricsEnabled": `true`, "prometheusMetricsHost": `"127.0.0.1"`, "prometheusMetricsPort": `9191`,
		"prometheusMetricsCertFile": `""`, "prometheusMetricsKeyFile": `""`, "prometheusMetricsCAFile": `""`,
		"debugHost": `"127.0.0.1"`, "debugPort": `9299`, "goGCThreshold": `60`, "goMemoryLimitMB": `512`, "goMaxProcs": `1`, "flowRevocationEnabled": `false`, "nftablesTableOwnerEnabled": `false`,
		"flowLogsLocalReporter": `"Enabled"`, "policyRendering": `"Chains"`, "nftablesMode": `"Disabled"`, "iptablesBackend": `"NFT"`, "nftablesMarkMask": `4278190080`, "iptablesMarkMask": `16711680`, "chainInsertMode": `"Append"`, "iptablesFilterAllowAction": `"Return"`, "iptablesMangleAllowAction": `"Return"`, "iptablesFilterDenyAction": `"Reject"`, "useInternalDataplaneDriver": `false`, "dataplaneDriver": `""`, "flowLogsPolicyEvaluationMode": `"None"`,
		"healthTimeoutOverrides": `[{"name":"calc","timeout":"60s"}]`, "prometheusGoMetricsEnabled": `false`, "prometheusProcessMetricsEnabled": `false`,
		"failsafeInboundHostPorts": `[{"protocol":"TCP","port":22}]`, "failsafeOutboundHostPorts": `[]`,
		"natOutgoingAddress": `"172.30.0.1"`, "natPortRange": `"40000:50000"`, "natOutgoingExclusions": `"IPPoolsAndHostIPs"`, "iptablesNATOutgoingInterfaceFilter": `"eth+"`,
		"vxlanEnabled": `false`, "vxlanPort": `8472`, "vxlanVNI": `4097`, "vxlanMTU": `1400`, "vxlanMTUV6": `1380`, "ipipEnabled": `false`, "ipipMTU": `1400`, "mtuIfacePattern": `"^eth"`,
		"featureDetectOverride": `"ChecksumOffloadBroken=true"`, "externalNodesList": `["192.0.2.0/24"]`, "programClusterRoutes": `"Enabled"`, "routeSyncDisabled": `true`, "removeExternalRoutes": `false`,
		"deviceRouteSourceAddress": `"172.30.0.1"`, "deviceRouteSourceAddressIPv6": `"fd30::1"`, "deviceRouteProtocol": `99`, "ipv4NormalRoutePriority": `900`, "ipv6NormalRoutePriority": `901`, "ipv4ElevatedRoutePriority": `400`, "ipv6ElevatedRoutePriority": `401`, "liveMigrationRouteConvergenceTime": `"5s"`,
		"wireguardEnabled": `true`, "wireguardEnabledV6": `true`, "wireguardListeningPort": `51830`, "wireguardListeningPortV6": `51831`, "wireguardInterfaceName": `"wg.v4"`, "wireguardInterfaceNameV6": `"wg.v6"`,
		"wireguardRoutingRulePriority": `98`, "wireguardMTU": `1400`, "wireguardMTUV6": `1380`, "wireguardKeepAlive": `"25s"`, "wireguardUserspaceEnabled": `false`, "wireguardAllowUnencrypted": `true`, "wireguardThreadingEnabled": `true`, "wireguardHostEncryptionEnabled": `true`, "routeTableRanges": `[{"min":20,"max":40}]`, "prometheusWireGuardMetricsEnabled": `false`,
		"logPrefix": `"%t"`, "logActionRateLimit": `"none"`, "logActionRateLimitBurst": `7`,
	}
	served := map[string]string{ // what there is to read, of those settings
		"healthPort": "localhost:9199/readiness", "prometheusMetricsEnabled": "localhost:9091/metrics", "debugPort": "localhost:9299/debug/pprof/heap",
	}
	pid := g.agentPID(g.Spec.Hosts[0])
	streams := []*stream{
		startUDP(t, g.Lab, a, b, false, true), startUDP(t, g.Lab, b, a, true, true), startTCP(t, g.Lab, a, b, false), startTCP(t, g.Lab, b, a, true),
	}
	var all []string
	for _, p := range config.Params() {
		if p.Fixed != "" {
			continue
		}
		value, ok := other[p.Name]
		if !ok {
			t.Errorf("the test has no other value of %s", p.Name)
			continue
		}
		all = append(all, fmt.Sprintf("%q:%s", p.Name, value))
		t.Run(p.Name, func(t *testing.T) {
			g.put(t, api.KindFelixConfiguration, "", "default", fmt.Sprintf("{%q:%s}", p.Name, value))
			g.beat(t)
			if at, ok := served[p.Name]; ok {
				await(t, at+" on h1", func() bool { return g.fetch(at) != "" })
			}
		})
	}
	t.Run("all at once", func(t *testing.T) {
		g.put(t, api.KindFelixConfiguration, "", "default", "{"+strings.Join(all, ",")+"}")
		g.want(t, "a -> h1:8080 yes", "a -> b yes")
		for _, moved := range []string{"127.0.0.1:9191/metrics", "127.0.0.1:9299/debug/pprof/goroutine"} {
			await(t, moved+" on h1", func() bool { return g.fetch(moved) != "" })
		}
		await(t, "metrics without those of Go and of the process", func() bool {
			text := "\n" + g.fetch("127.0.0.1:9191/metrics")
			return strings.Contains(text, "\nfelix_") && !strings.Contains(text, "\ngo_") && !strings.Contains(text, "\nprocess_")
		})
		await(t, "nobody at the port of health", func() bool {
			return g.fetch("localhost:9099/readiness") == "" && g.fetch("127.0.0.1:9199/readiness") == ""
		})
		g.awaitLog(t, "level=DEBUG", 1)
	})
	g.want(t, "a -> h1:8080 no", "a -> b yes")
	for _, s := range streams {
		s.stop(t)
	}
	if now := g.agentPID(g.Spec.Hosts[0]); now != pid {
		t.Errorf("the agent is %d, was %d: it was restarted", now, pid)
	}
}
