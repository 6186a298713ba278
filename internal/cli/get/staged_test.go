package get_test

import (
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
)

// TestStagedPoliciesOfKubernetesAreShownAndJudged: as the NetworkPolicies that they would be.
func TestStagedPoliciesOfKubernetesAreShownAndJudged(t *testing.T) {
	c := clitest.New(t, cli.Execute)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Want(0, `{apiVersion: projectcalico.org/v3, kind: StagedKubernetesNetworkPolicy, metadata: {name: try, namespace: prod},
 spec: {podSelector: {matchLabels: {app: web}}, policyTypes: [Egress]}}`, "apply", "-f", "-")
	const would = "If staged policies were enforced: DENIED by the end of tier default, egress of prod/web: its last policy here is stagedkubernetesnetworkpolicy/prod/try"
	clitest.Contains(t, c.Want(0, "", "why", "prod/web", "prod/db", "tcp/5432", "-4"), "ALLOWED by", would)
	clitest.Contains(t, c.Want(0, "", "get", "stagedkubernetesnetworkpolicies", "-n", "prod"), "TIER", "ORDER", "RULES", "default", "1000", "0 in, 0 out", "app == 'web'")
	clitest.Contains(t, c.Want(0, "", "describe", "sknp", "try", "-n", "prod"), "it is not enforced")
}
