package show_test

import (
	"regexp"
	"testing"

	"github.com/twillnet/twill/internal/cli/clitest"
)

var ownValues = regexp.MustCompile(`(?m)^(Created|Revision): .*\n`)

func TestDescribe(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Raw("globalnetworkpolicies/lost", `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"lost"},"spec":{"tier":"nowhere","selector":"app == \"none\"","types":["Ingress"]}}`)
	for _, tt := range []struct{ name, args, want string }{
		{"a policy: place, rules, workloads", "describe np db -n prod", `
Name:       db
Namespace:  prod
Kind:       NetworkPolicy
Key:        /calico/resources/v3/projectcalico.org/networkpolicies/prod/db
Labels:     projectcalico.org/tier=default
Tier:       default: tier 3 of 5, end of tier: deny
Order:      100: policy 1 of 1 in its tier
Types:      Ingress
Selector:   app == "db"
Ingress:
  0  Log, protocol TCP
  1  Allow, protocol TCP, source.selector app == "web", destination.ports [5432:5433]
Egress:     no rules
Applies to 1 workload:
  prod/db  on h2  10.65.0.2 fd65::2
Findings:   none`},
		{"a policy of no tier, for nobody", "describe gnp lost", `
Name:       lost
Kind:       GlobalNetworkPolicy
Key:        /calico/resources/v3/projectcalico.org/globalnetworkpolicies/lost
Tier:       nowhere: tier 5 of 5, end of tier: deny
Order:      last: policy 1 of 1 in its tier
Types:      Ingress
Selector:   app == "none"
Ingress:    no rules
Egress:     no rules
Applies to: no workload
Findings:
  spec.tier: tier "nowhere" does not exist: it comes after all others and ends in deny`},
		{"an endpoint: what its packets meet", "describe wep h2-k8s-db-eth0 -n prod", `
Name:       h2-k8s-db-eth0
Namespace:  prod
Kind:       WorkloadEndpoint
Key:        /calico/resources/v3/projectcalico.org/workloadendpoints/prod/h2-k8s-db-eth0
Labels:     app=db,projectcalico.org/namespace=prod,projectcalico.org/orchestrator=k8s
In force:   app=db,projectcalico.org/namespace=prod,projectcalico.org/orchestrator=k8s
Node:       h2
Interface:  calidb
Networks:   10.65.0.2/32, fd65::2/128
Ingress:
  tier security: globalnetworkpolicy/no-telnet; end of tier: pass
  tier default: networkpolicy/prod/db; end of tier: deny
  profiles, only after a Pass rule: kns.prod
Egress:
  tier security: globalnetworkpolicy/no-telnet; end of tier: pass
  profiles: kns.prod
Findings:   none`},
		{"a tier: its policies", "describe tier security", `
Name:       security
Kind:       Tier
Key:        /calico/resources/v3/projectcalico.org/tiers/security
Order:      100
Default:    Pass
Place:      1 of 5
Policies:
  globalnetworkpolicy/no-telnet
Findings:   none`},
		{"a built-in tier", "describe tier kube-admin", `
Name:       kube-admin
Kind:       Tier
Key:        /calico/resources/v3/projectcalico.org/tiers/kube-admin
Order:      1000
Default:    Pass
Place:      2 of 5
Policies:   none
Findings:   none`},
		{"a node: what runs there", "describe node h1", `
Name:       h1
Kind:       Node
Key:        /calico/resources/v3/projectcalico.org/nodes/h1
Spec:
  bgp:
    ipv4Address: 192.0.2.1/24
Runs 1 workload:
  prod/h1-k8s-web-eth0  on h1  10.65.0.1 fd65::1
Findings:   none`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.Equal(t, ownValues.ReplaceAllString(c.On(t).Want(0, "", clitest.Words(tt.args)...), ""), tt.want)
		})
	}
	clitest.Contains(t, c.Want(0, "", "describe", "profile", "kns.prod"), "Used by 2 workloads:")
	clitest.Contains(t, c.Want(1, "", "describe", "np", "nope", "-n", "prod"), "does not exist; there are db")
	clitest.Contains(t, c.Want(2, "", "describe"), "want a kind")
}

func TestDescribeSaysWhatOfAPolicyOfKubernetesIsClosed(t *testing.T) {
	c := newCLI(t)
	c.Raw("globalnetworkpolicies/kcnp.some", `{"kind":"GlobalNetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"kcnp.some","annotations":{"twill.net/not-translated":"spec.tier: is wrong"}},"spec":{"tier":"kube-baseline","selector":"app == \"none\"","types":["Ingress"]}}`)
	clitest.Equal(t, ownValues.ReplaceAllString(c.Want(0, "", "describe", "gnp", "kcnp.some"), ""), `
Name:       kcnp.some
Kind:       GlobalNetworkPolicy
Key:        /calico/resources/v3/projectcalico.org/globalnetworkpolicies/kcnp.some
Tier:       kube-baseline: tier 3 of 3, end of tier: pass
Order:      last: policy 1 of 1 in its tier
Types:      Ingress
Selector:   app == "none"
Ingress:    no rules
Egress:     no rules
Applies to: no workload
Findings:
  what could not be translated from Kubernetes is closed: spec.tier: is wrong`)
}

func TestDescribeNamesAProfileThatIsGone(t *testing.T) {
	c := newCLI(t)
	c.Raw("workloadendpoints/prod/h2-k8s-bare-eth0", `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"h2-k8s-bare-eth0","namespace":"prod","labels":{"zone":"z"}},"spec":{"orchestrator":"k8s","node":"h2","pod":"bare","endpoint":"eth0","interfaceName":"calib","ipNetworks":["10.65.0.3/32"],"profiles":["gone"]}}`)
	clitest.Contains(t, c.Want(0, "", "describe", "wep", "-A", "-l", "zone=z"), `spec.profiles: profile "gone" does not exist, which denies`)
}

func TestDescribeShowsWhatIsNoResource(t *testing.T) {
	c := newCLI(t)
	c.Raw("networkpolicies/prod/worse", "{")
	clitest.Contains(t, c.Want(0, "", "describe", "np", "worse", "-n", "prod"), "not JSON")
}
