package caliconode

import (
	"os"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/node"
)

// TestSettingsOfTyphaBecomeFlags that `twill relay` has, from the environment and from the file, each as it is meant; what has no effect is named, and
// what cannot be read is refused.
func TestSettingsOfTyphaBecomeFlags(t *testing.T) {
	alone(t)
	const usual = " --health=127.0.0.1:9098 --metrics="
	relay := relayCommand(t)
	clear := func(t *testing.T) {
		t.Helper()
		for _, s := range typhaSettings() {
			t.Setenv("TYPHA_"+strings.ToUpper(s.name), "")
			if s.to != "" && !strings.HasPrefix(s.to, "--") {
				t.Setenv(s.to, "")
			}
		}
	}
	cases := []struct {
		given, want string // NAME=VALUE…, and flags, or variables, or what is printed
	}{
		{"ServerPort=1234", "--listen=:1234" + usual},
		{"ServerHost=192.0.2.1 LogSeverityScreen=Warning", "--listen=192.0.2.1:5473 --log-level=warning" + usual},
		{"ServerHost=2001:db8::1 ServerPort=1234", "--listen=[2001:db8::1]:1234" + usual},
		{"CAFile=/ca ServerCertFile=/c ServerKeyFile=/k ClientCN=agent ClientURISAN=spiffe://x/y", "--tls-ca=/ca --tls-cert=/c --tls-key=/k --client-cn=agent --client-uri-san=spiffe://x/y" + usual},
		{"ServerPingIntervalSecs=5 ServerPongTimeoutSecs=60.5 ServerHandshakeTimeoutSecs=1", "--ping-interval=5s --pong-timeout=1m0.5s --handshake-timeout=1s" + usual},
		{"ShutdownTimeoutSecs=300", "--drain=5m0s" + usual},
		{"ConnectionRebalancingMode=none K8sServiceName=x", "--health=127.0.0.1:9098 --metrics="},
		{"ConnectionRebalancingMode=kubernetes", "--relay-service=kube-system/calico-typha" + usual},
		{"ConnectionRebalancingMode=kubernetes K8sServiceName=relays K8sNamespace=net K8sPortName=grpc", "--relay-port-name=grpc --relay-service=net/relays" + usual},
		{"ConnectionRebalancingMode=often", `TYPHA_CONNECTIONREBALANCINGMODE is "often": want none or kubernetes`},
		{"ConnectionDropIntervalSecs=0.5 MaxConnectionsLowerLimit=3 MaxConnectionsUpperLimit=7", "--move-interval=500ms --min-clients=3 --max-clients=7" + usual},
		{"HealthEnabled=false", "--health= --metrics="},
		{"HealthEnabled=true HealthHost=::1 HealthPort=99", "--health=[::1]:99 --metrics="},
		{"PrometheusMetricsEnabled=True", "--health=127.0.0.1:9098 --metrics=:9093"},
		{"PrometheusMetricsEnabled=true PrometheusMetricsHost=192.0.2.1 PrometheusMetricsPort=1", "--health=127.0.0.1:9098 --metrics=192.0.2.1:1"},
		{"LogSeverityScreen=Warning", "--log-level=warning" + usual},
		{"LogSeverityScreen=none", "--log-level=panic" + usual},
		{"DatastoreType=kubernetes", "DATASTORE_TYPE=kubernetes"},
		{"EtcdEndpoints=https://192.0.2.1:2379 EtcdAddr=192.0.2.2:4001 EtcdCaFile=/ca EtcdCertFile=/c EtcdKeyFile=/k", "ETCD_ENDPOINTS=https://192.0.2.1:2379 ETCD_CA_CERT_FILE=/ca ETCD_CERT_FILE=/c ETCD_KEY_FILE=/k"},
		{"EtcdAddr=192.0.2.2:4001", "ETCD_ENDPOINTS=http://192.0.2.2:4001"},
		{"EtcdAddr=192.0.2.2:4001 EtcdScheme=https", "ETCD_ENDPOINTS=https://192.0.2.2:4001"},
		{"EtcdAddr=192.0.2.2:4001 EtcdScheme=ftp", `TYPHA_ETCDSCHEME is "ftp": want http or https`},
		{"ServerPort=70000", `TYPHA_SERVERPORT is "70000": want a port, 1 to 65535`},
		{"HealthPort=x", `TYPHA_HEALTHPORT is "x": want a port, 1 to 65535`},
		{"HealthEnabled=maybe", `TYPHA_HEALTHENABLED is "maybe": want true or false`},
		{"ShutdownTimeoutSecs=NaN", `TYPHA_SHUTDOWNTIMEOUTSECS is "NaN": want seconds, more than 0`},
		{"ServerPongTimeoutSecs=-1", `TYPHA_SERVERPONGTIMEOUTSECS is "-1": want seconds, more than 0`},
		{"Nonsense=1", "NONSENSE has no effect: there is no such setting"},
	}
	for _, s := range typhaSettings() {
		if s.test == "" {
			cases = append(cases, struct{ given, want string }{s.name + "=1", "warning: TYPHA_" + strings.ToUpper(s.name) + " has no effect: " + s.why})
		}
	}
	for _, tt := range cases {
		for _, where := range []string{"environment", "file", "file that is named"} {
			t.Run(tt.given+" in the "+where, func(t *testing.T) {
				clear(t)
				args := []string{"calico-typha"}
				switch lines := strings.Fields(tt.given); where {
				case "environment":
					for _, line := range lines {
						name, value, _ := strings.Cut(line, "=")
						t.Setenv("TYPHA_"+strings.ToUpper(name), value)
					}
				default:
					file := clitest.File(t, "typha.cfg", "[default]\n# a comment\n"+strings.ReplaceAll(strings.Join(lines, "\n"), "=", " = ")+"\n")
					was := TyphaConfig
					t.Cleanup(func() { TyphaConfig = was })
					if TyphaConfig = file; where != "file" {
						TyphaConfig, args = clitest.File(t, "typha.cfg", "ServerPort = x\n"), append(args, "--config-file="+file)
					}
				}
				ran, _, out := call(t.Context(), args...)
				got := strings.TrimPrefix(ran, "twill relay ") + "\n" + strings.Join(os.Environ(), "\n") + "\n" + strings.ToLower(out)
				want := tt.want
				switch {
				case strings.HasPrefix(want, "--"):
					want += "\n" // all of them
				case !strings.Contains(want, "has no effect") && !strings.Contains(want, "want"): // variables
					for _, v := range strings.Fields(want) {
						if !strings.Contains(got, "\n"+v+"\n") {
							t.Errorf("there is no %s", v)
						}
					}
					return
				default:
					want = strings.ToLower(want)
				}
				if !strings.Contains(got, want) {
					t.Errorf("ran %q, printed %q; want %q", ran, out, tt.want)
				}
			})
		}
	}
	for _, s := range typhaSettings() {
		if name, ok := strings.CutPrefix(s.to, "--"); ok && relay.Flag(name) == nil && name != "log-level" {
			t.Errorf("%s: twill relay has no %s", s.name, s.to)
		}
	}
	clear(t)
	t.Setenv("TYPHA_SERVICE_HOST", "10.96.0.1")
	t.Setenv("TYPHA_PORT_5473_TCP", "tcp://10.96.0.1:5473")
	TyphaConfig = clitest.File(t, "typha.cfg", "ServerPort = 1\n")
	t.Setenv("TYPHA_SERVERPORT", "2")
	if ran, _, out := call(t.Context(), "calico-typha"); ran != "twill relay --listen=:2"+usual || out != "" {
		t.Errorf("the environment wins over the file, and what kubelet sets is no setting: ran %q\n%s", ran, out)
	}
}

func relayCommand(t *testing.T) *cobra.Command {
	t.Helper()
	for _, cmd := range node.Commands(&conn.Env{Stdio: console.Stdio{}}) {
		if cmd.Name() == "relay" {
			return cmd
		}
	}
	t.Fatal("there is no command relay")
	return nil
}
