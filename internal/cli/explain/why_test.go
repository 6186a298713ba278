package explain_test

import (
	"encoding/json"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/explain"
)

var Update = flag.Bool("update", false, "write testdata/why.golden again; read it before you commit it")

// TestWhyGolden asks on a live store and on files; both must say what
// testdata/why.golden holds: question, exit code, answer.
func TestWhyGolden(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	const path = "testdata/why.golden"
	golden, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for i, part := range strings.Split(string(golden), "# ") {
		head, want, _ := strings.Cut(part, "\n")
		if i == 0 {
			continue // what stands before the first question
		}
		args, code, _ := strings.Cut(head, " => ")
		got, out, errs := c.Run("", append([]string{"why"}, strings.Fields(args)...)...)
		all.WriteString("# " + args + " => " + string(rune('0'+got)) + "\n" + out + errs)
		if *Update {
			continue
		}
		t.Run(args, func(t *testing.T) {
			if code != string(rune('0'+got)) {
				t.Errorf("exit code %d, want %s", got, code)
			}
			clitest.Equal(t, out+errs, want)
			_, offline, errs := c.On(t).Run("", append([]string{"why", "--files", clitest.Prod}, strings.Fields(args)...)...)
			clitest.Equal(t, offline+errs, want)
		})
	}
	if *Update {
		if err := os.WriteFile(path, []byte(all.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestWhyJSON(t *testing.T) {
	code, out, _ := newCLI(t).Run("", "why", "--files", clitest.Prod, "prod/web", "prod/db", "tcp/80", "-o", "json")
	var got explain.Explanation
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != explain.Denied || got.Allowed || len(got.Answers) != 2 {
		t.Errorf("exit code %d, %v\n%s", code, err, out)
	}
	if d := got.Answers[0].Decided; d.Policy != "NetworkPolicy/prod/db" || d.Tier != "default" || d.RuleIndex != -1 {
		t.Errorf("decided: %+v", d)
	}
}

func TestWhySaysWhetherTheSenderGetsAReject(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Want(0, rejecting, "apply", "-f", "-")
	clitest.Contains(t, c.Want(3, "", "why", "prod/web", "prod/db", "tcp/5432", "-4"),
		"DENIED by networkpolicy/prod/first rule 0 (Deny and reject, protocol TCP) in tier default, ingress of prod/db; the sender is told\n")
	clitest.Contains(t, c.Want(3, "", "why", "host/h1", "203.0.113.9", "tcp/80", "-4"),
		"DENIED by globalnetworkpolicy/out rule 0 (Deny and reject) in tier default, egress of h1; in silence: at this stage the sender cannot be told\n")
	if out := c.Want(3, "", "why", "prod/web", "prod/db", "tcp/80", "-4"); !strings.Contains(out, "rule 0 (Deny and reject") {
		t.Errorf("it is\n%s", out)
	}
	if out := c.Want(3, "", "why", "prod/web", "prod/db", "udp/80", "-4"); strings.Contains(out, "told") {
		t.Errorf("nothing rejects:\n%s", out)
	}
}

const rejecting = `
apiVersion: projectcalico.org/v3
kind: NetworkPolicy
metadata: {name: first, namespace: prod}
spec:
  order: 1
  selector: app == "db"
  types: [Ingress]
  ingress:
  - {action: Deny, protocol: TCP, metadata: {annotations: {twill.net/reject: "true"}}}
---
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: h1, labels: {role: host}}
spec: {node: h1, interfaceName: "*", expectedIPs: [192.0.2.1]}
---
apiVersion: projectcalico.org/v3
kind: GlobalNetworkPolicy
metadata: {name: out}
spec: {selector: role == "host", types: [Egress], egress: [{action: Deny, metadata: {annotations: {twill.net/reject: "true"}}}]}
`

func TestWhyNamesWhatIsWrong(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Raw("networkpolicies/other/elsewhere", `{"metadata":{"name":"elsewhere","namespace":"other"},"spec":{"selector":"app = 1"}}`)
	c.Raw("globalnetworkpolicies/lost", `{"metadata":{"name":"lost"},"spec":{"selector":"all("}}`)
	c.Raw("networkpolicies/prod/void", `{"metadata":{"name":"void","namespace":"prod"},"spec":{"order":1,"selector":"all()","types":["Ingress"],"ingress":[{"action":"Allow","source":{"nets":["10.0.0.1/8/9"]}}]}}`)
	out := c.Want(3, "", "why", "prod/web", "prod/db", "tcp/80", "-4")
	clitest.Contains(t, out, "networkpolicy/prod/void: no rule matched", "Wrong in resources that may bear on this:", "globalnetworkpolicy/lost: spec.selector", "networkpolicy/prod/void: spec.ingress[0]")
	if n := strings.Count(out, "keeps that in force; this answer is without it"); n != 1 || !strings.Contains(out, "globalnetworkpolicy/lost: spec.selector") {
		t.Errorf("%d resources may be kept as they were, want the global policy alone:\n%s", n, out)
	}
	if strings.Contains(out, "elsewhere") {
		t.Errorf("a policy of another namespace has no part in this:\n%s", out)
	}
	c.Raw("networkpolicies/prod/closed", `{"metadata":{"name":"closed","namespace":"prod"},"spec":{"selector":"app = 1"}}`)
	clitest.Contains(t, c.Want(3, "", "why", "prod/web", "prod/db", "tcp/5432", "-4"), "DENIED: a policy of the namespace cannot be read (spec.selector", "networkpolicy/prod/closed: spec.selector")
}

func TestWhyTellsWhatStagedPoliciesWouldChange(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Want(0, stagedDeny, "apply", "-f", "-")
	const would = "DENIED by stagednetworkpolicy/prod/try rule 0 (Deny) in tier default, ingress of prod/db"
	clitest.Contains(t, c.Want(0, "", "why", "prod/web", "prod/db", "tcp/5432", "-4"), "ALLOWED by", "If staged policies were enforced: "+would)
	clitest.Contains(t, c.Want(3, "", "why", "prod/web", "prod/db", "tcp/5432", "-4", "--staged"), "\n"+would, "Without staged policies, as it is now: ALLOWED by")
	if out := c.Want(3, "", "why", "prod/web", "prod/db", "tcp/80", "-4"); strings.Contains(out, "taged") {
		t.Errorf("both deny, so that there is nothing to tell:\n%s", out)
	}
}

const stagedDeny = `{apiVersion: projectcalico.org/v3, kind: StagedNetworkPolicy, metadata: {name: try, namespace: prod},
 spec: {order: 1, selector: app == "db", ingress: [{action: Deny}]}}`

func TestWhyOfAnEndpointWithoutAddress(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Raw("workloadendpoints/prod/h1-k8s-bare-eth0", `{"metadata":{"name":"h1-k8s-bare-eth0","namespace":"prod"},"spec":{"orchestrator":"k8s","node":"h1","pod":"bare","endpoint":"eth0","interfaceName":"calibare"}}`)
	clitest.Contains(t, c.Want(3, "", "why", "prod/bare", "prod/db", "tcp/5432"), "DENIED: no address of this family (prod/bare)")
}

func TestWhyCannotAnswer(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	for args, want := range map[string]string{
		"prod/wep prod/db tcp/1":         "prod/wep: no such workload, host or address",
		"10.65.0.1 fd65::2 tcp/1":        "no family in which both have an address",
		"prod/web prod/db icmpv6 -4":     "no family in which both have an address and this protocol exists",
		"prod/web prod/db tcp/1 --files": "flag needs an argument",
	} {
		code, out, errs := c.Run("", append([]string{"why"}, strings.Fields(args)...)...)
		if code == 0 || code == explain.Denied {
			t.Errorf("%s: exit code %d: %s", args, code, out)
		}
		clitest.Contains(t, errs, want)
	}
}

func TestWhatAProtocolMeansInEachFamily(t *testing.T) {
	for args, families := range map[string]int{
		"icmp": 2, "icmp/8": 2, "icmp/8/0": 2, "icmp/3/1": 1, "icmpv6": 1, "icmpv6/128/0": 1,
		"tcp/80": 2, "UDP/53": 2, "sctp/5000": 2, "udplite/9": 2, "47": 2, "6/80": 2,
	} {
		_, out, _ := newCLI(t).Run("", "why", "--files", clitest.Prod, "prod/web", "prod/db", args, "-o", "json")
		var got explain.Explanation
		if err := json.Unmarshal([]byte(out), &got); err != nil || len(got.Answers) != families {
			t.Errorf("%s: %d families, want %d: %v", args, len(got.Answers), families, err)
		}
	}
}

// TestWhySaysWhichInterfaceItAssumes: the kernel drops what comes to a host endpoint that nothing allows, whether the resource says its
// addresses or not.
func TestWhySaysWhichInterfaceItAssumes(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/host.yaml", []byte(`
apiVersion: projectcalico.org/v3
kind: Node
metadata: {name: h1}
spec: {bgp: {ipv4Address: 192.0.2.1/24}}
---
apiVersion: projectcalico.org/v3
kind: HostEndpoint
metadata: {name: h1-eth0}
spec: {node: h1, interfaceName: eth0}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, flag string
		code       int
		want       string
	}{
		{"nobody says the interface", "", explain.Denied, `203.0.113.9 host/h1 tcp/80  203.0.113.9 → 192.0.2.1
  ingress of h1-eth0 on h1, if by eth0: nothing says which interface of h1 it is (--uplink)
    no profile: deny
DENIED: no profile, ingress of h1-eth0
`},
		{"it is that of the host endpoint", "--uplink=eth0", explain.Denied, `203.0.113.9 host/h1 tcp/80  203.0.113.9 → 192.0.2.1
  ingress of h1-eth0 on h1
    no profile: deny
DENIED: no profile, ingress of h1-eth0
`},
		{"it is another", "--uplink=eth1", 0, `203.0.113.9 host/h1 tcp/80  203.0.113.9 → 192.0.2.1
ALLOWED: no policy of ours is on this way
`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := []string{"why", "--files", dir, "203.0.113.9", "host/h1", "tcp/80"}
			if tt.flag != "" {
				args = append(args, tt.flag)
			}
			code, out, errs := newCLI(t).Run("", args...)
			if code != tt.code {
				t.Errorf("exit code %d, want %d", code, tt.code)
			}
			clitest.Equal(t, out+errs, tt.want)
		})
	}
}
