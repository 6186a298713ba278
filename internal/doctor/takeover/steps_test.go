package takeover

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/config"
	"github.com/twillnet/twill/internal/doctor"
)

func TestWhatIsNextFollowsFromHowFarAHostIs(t *testing.T) {
	kubernetes := func(f *Facts) {
		f.Kubernetes, f.Agents[0].Environ = true, []string{"DATASTORE_TYPE=kubernetes", "KUBERNETES_SERVICE_HOST=10.96.0.1"}
	}
	for _, tt := range []struct {
		name  string
		plant func(*Facts)
		stage Stage
		next  string // what begins each step
		back  string
	}{
		{"Calico's agent under systemd", func(*Facts) {}, Upstream, `1. systemctl disable --now calico-felix (or
2. twill node install --etcd https://192.0.2.9:2379 (and --etcd-ca, --etcd-cert, --etcd-key): it comes
3. twill status:
4. twill doctor --fix leftovers
5. twill doctor --take-over:`, ""},
		{"a pod of Kubernetes, and etcd", func(f *Facts) { f.Agents[0].Environ = append(f.Agents[0].Environ, "KUBERNETES_SERVICE_HOST=10.96.0.1") }, Upstream, `1. Take this node out of the DaemonSet calico-node
2. twill node install
3. twill status:
4. twill doctor --fix leftovers
5. twill doctor --take-over:`, ""},
		{"with BIRD, and BIRD is to speak", func(f *Facts) {
			f.Processes = append(f.Processes, doctor.Process{Name: "bird", PID: 9})
			f.BGP.Mode = "bird"
		}, Upstream, `1. systemctl disable --now calico-felix, and its BIRD
2. twill node install --etcd https://192.0.2.9:2379 (and --etcd-ca, --etcd-cert, --etcd-key), with TWILL_BGP=bird in /etc/twill/node.env: it comes
3. twill status:
4. twill doctor --fix leftovers
5. twill doctor --take-over:`, ""},
		{"something blocks", func(f *Facts) { f.Drops = []string{"FORWARD"} }, Upstream, `1. Put right what blocks (1 finding above)
2. systemctl disable --now calico-felix (or
3. twill node install
4. twill status:
5. twill doctor --fix leftovers
6. twill doctor --take-over:`, ""},
		{"Calico's agent is stopped", func(f *Facts) { settled(f); f.Agent.Err = "no agent answers" }, Upstream, `1. Keep Calico's agent from starting again
2. twill node install
3. twill status:
4. twill doctor --fix leftovers
5. twill doctor --take-over:`, ""},
		{"a node of Kubernetes", kubernetes, Upstream, `1. kubectl cordon h1:
2. Take this node out of the DaemonSet calico-node
3. Let Twill's DaemonSet run on this node
4. twill status:
5. twill doctor --fix leftovers
6. kubectl uncordon h1
7. twill doctor --take-over:`, ""},
		{"both run", func(f *Facts) { f.Agent.Err = "" }, Both, `1. Put right what blocks (1 finding above)
2. systemctl disable --now calico-felix (or
3. twill status:
4. twill doctor --fix leftovers`, `1. systemctl stop twill-node
2. Start Calico's agent
3. Settings that Twill alone has
4. twill node uninstall`},
		{"leftovers", settled, Left, `1. twill bgp peers:
2. twill doctor --fix leftovers
3. twill doctor --take-over:`, `1. systemctl stop twill-node
2. Start Calico's agent
3. Settings that Twill alone has
4. twill node uninstall`},
		{"taken over, with Twill's plugin", func(f *Facts) {
			settled(f)
			f.Chains, f.Plugins = nil, []Plugin{{Name: "calico", There: true, Our: true}, {Name: "calico-ipam", There: true, Our: true}}
		}, Taken, "1. Nothing: this host is Twill's", `1. systemctl stop twill-node
2. Have Calico's installer write its plugins again
3. Start Calico's agent
4. Settings that Twill alone has
5. twill node uninstall`},
		{"the datastore does not answer", func(f *Facts) { f.Store.Err = "away" }, Upstream, "1. Put right what blocks (1 finding above)", ""},
		{"not root", func(f *Facts) { f.HostErr = "no" }, Unknown, "1. Put right what blocks (1 finding above)\n2. Run this as root on each host", ""},
		{"our agent does not answer", func(f *Facts) { f.AgentErr = "deadline exceeded" }, Unknown, "1. Put right what blocks (1 finding above)\n2. Run this as root on each host", ""},
		{"no node, and not root", func(f *Facts) {
			*f.Facts = doctor.Facts{Node: "laptop", Nodes: f.Nodes, Agent: f.Agent}
			f.HostErr = "not permitted"
		}, Elsewhere, "1. Run this as root on each host", ""},
		{"no node", func(f *Facts) {
			settled(f)
			f.Agent.Err, f.Node, f.Chains = "no agent answers", "laptop", nil
		}, Elsewhere, "1. Run this as root on each host", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := calico()
			f.put("felixconfigurations/default", `{"spec":{}}`)
			tt.plant(f)
			if got := StageOf(f); got != tt.stage {
				t.Errorf("stage %s, want %s", got, tt.stage)
			}
			begins(t, Next(f, Judge(f)), tt.next)
			begins(t, Back(f), tt.back)
		})
	}
}

// begins compares how each step begins.
func begins(t *testing.T, got []string, want string) {
	t.Helper()
	lines := strings.Split(want, "\n")
	if want == "" {
		lines = nil
	}
	if len(got) != len(lines) {
		t.Errorf("got:\n%s\nwant:\n%s", strings.Join(got, "\n"), want)
		return
	}
	for i, w := range lines {
		if !strings.HasPrefix(got[i], w) {
			t.Errorf("got %q, want %q", got[i], w)
		}
	}
}

func TestSettingsAreNamedOnTheWayBackWhereTwillHasSome(t *testing.T) {
	for _, tt := range []struct {
		name  string
		plant func(*Facts)
		steps int
	}{
		{"none", func(*Facts) {}, 3},
		{"on the host", func(f *Facts) { f.Local = []config.Layer{{Name: "environment"}} }, 4},
		{"in the datastore", func(f *Facts) { f.put("felixconfigurations/default", `{"spec":{}}`) }, 4},
	} {
		f := calico()
		settled(f)
		tt.plant(f)
		if got := Back(f); len(got) != tt.steps {
			t.Errorf("%s: %d steps, want %d: %q", tt.name, len(got), tt.steps, got)
		}
	}
}

// TestHowToLeaveEBPF: by upstream's agent, which removes its programs, and where it does not run, by that or a reboot; said once.
func TestHowToLeaveEBPF(t *testing.T) {
	pins := []string{"/sys/fs/bpf/tc/globals/cali_v4_routes"}
	for _, tt := range []struct {
		name  string
		plant func(*Facts)
		want  []string // what each says to do begins with it
	}{
		{"it runs, and uses it", func(f *Facts) { f.put("felixconfigurations/default", `{"spec":{"bpfEnabled":true}}`) }, []string{switchOff, "as above"}},
		{"it runs, and does not say so", func(*Facts) {}, []string{switchOff}},
		{"it does not run", func(f *Facts) { settled(f); f.Agent.Err = "no agent answers" }, []string{"start Calico's agent once more with bpfEnabled: false"}},
	} {
		f := calico()
		f.Pins = pins
		tt.plant(f)
		got := ebpf(f)
		if len(got) != len(tt.want) {
			t.Errorf("%s: %+v", tt.name, got)
			continue
		}
		for i, w := range tt.want {
			if !strings.HasPrefix(got[i].Do, w) {
				t.Errorf("%s: %q, want %q", tt.name, got[i].Do, w)
			}
		}
	}
}
