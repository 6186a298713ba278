package crds

import (
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// builtinTiers are those that exist without being made.
var builtinTiers = []string{api.TierDefault, api.TierKubeAdmin, api.TierKubeBaseline}

// tiered are the kinds of objects that are in a tier; those that do not say in which are in the default one.
var tiered = []any{"networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies", "stagedkubernetesnetworkpolicies"}

// BuiltinTiers are the objects by which the API server keeps the built-in tiers from being deleted. What must not change in them is in
// the definition of tiers.
func BuiltinTiers() []map[string]any {
	return admission("builtin-tiers.twill.net", []any{"tiers"}, []any{"DELETE"}, nil, []any{map[string]any{
		"expression":        "!(oldObject.metadata.name in ['" + strings.Join(builtinTiers, "', '") + "'])",
		"messageExpression": "'the built-in tier ' + oldObject.metadata.name + ' cannot be deleted'", "reason": "Forbidden",
	}})
}

// TieredRBAC are the objects by which the API server lets a policy be written only by who may write policies of its tier: who may get the
// tier, and may do the same to the pseudo-resource of the kind, such as tier.networkpolicies, by the name TIER.NAME or TIER.*, which are
// upstream's names. It takes rights away, and gives none: RBAC asks for those to the kind itself before. Reading is not judged by it.
//
// An expression may ask twice what a user may do, so there are several. The verb of a patch is not known here: who may either
// update or patch may change.
func TieredRBAC() []map[string]any {
	variables := []any{
		variable("policy", "request.operation == 'DELETE' ? oldObject : object"),
		variable("tier", tierOf("variables.policy")),
		variable("before", "request.operation == 'UPDATE' ? "+tierOf("oldObject")+" : variables.tier"),
		variable("verb", "request.operation == 'CREATE' ? 'create' : request.operation == 'DELETE' ? 'delete' : 'update'"),
	}
	for _, tier := range []string{"tier", "before"} {
		in := "variables." + tier
		variables = append(variables,
			variable(tier+"Seen", check("'tiers'", "''", in, "'get'")),
			variable(tier+"Held", mayWrite(in, "variables.verb")),
			variable(tier+"Patched", "request.operation == 'UPDATE' && ("+mayWrite(in, "'patch'")+")"))
	}
	return admission("tiered-rbac.twill.net", tiered, []any{"CREATE", "UPDATE", "DELETE"}, variables, []any{
		refusal("variables.tierSeen", "' may not get tier ' + variables.tier"),
		refusal("variables.tierHeld || variables.tierPatched", mayNot("tier")),
		refusal("variables.before == variables.tier || variables.beforeSeen", "' may not get tier ' + variables.before"),
		refusal("variables.before == variables.tier || variables.beforeHeld || variables.beforePatched", mayNot("before")),
	})
}

// tierOf is the tier of a policy.
func tierOf(object string) string {
	return fmt.Sprintf("(has(%[1]s.spec) && has(%[1]s.spec.tier) && %[1]s.spec.tier != '' ? %[1]s.spec.tier : '%[2]s')", object, api.TierDefault)
}

// mayWrite is that a user has a right to a policy in a tier: to all of the tier, or by its name, which may begin with its tier already.
func mayWrite(tier, verb string) string {
	const resource, namespace = "'tier.' + request.resource.resource", "has(request.namespace) ? request.namespace : ''"
	name := fmt.Sprintf("variables.policy.metadata.name.startsWith(%[1]s + '.') ? variables.policy.metadata.name : %[1]s + '.' + variables.policy.metadata.name", tier)
	return check(resource, namespace, tier+" + '.*'", verb) + " || " + check(resource, namespace, name, verb)
}

// check asks what the user may do.
func check(resource, namespace, name, verb string) string {
	group, _, _ := strings.Cut(string(form.V3), "/")
	return fmt.Sprintf("authorizer.group('%s').resource(%s).namespace(%s).name(%s).check(%s).allowed()", group, resource, namespace, name, verb)
}

// mayNot says which right a user lacks.
func mayNot(tier string) string {
	return "' may not ' + variables.verb + ' tier.' + request.resource.resource + ' ' + variables." + tier + " + '.*, nor ' + variables." + tier + " + '.' + variables.policy.metadata.name"
}

func variable(name, expression string) map[string]any {
	return map[string]any{"name": name, "expression": expression}
}

func refusal(unless, message string) map[string]any {
	return map[string]any{"expression": unless, "messageExpression": "request.userInfo.username + " + message, "reason": "Forbidden"}
}

// admission is a policy of the API server that refuses, and what puts it in force.
func admission(name string, resources, operations, variables, validations []any) []map[string]any {
	const version = "admissionregistration.k8s.io/v1"
	group, groupVersion, _ := strings.Cut(string(form.V3), "/")
	spec := map[string]any{
		"failurePolicy": "Fail", "validations": validations,
		"matchConstraints": map[string]any{"resourceRules": []any{map[string]any{
			"apiGroups": []any{group}, "apiVersions": []any{groupVersion}, "resources": resources, "operations": operations,
		}}},
	}
	if len(variables) > 0 {
		spec["variables"] = variables
	}
	return []map[string]any{
		{"apiVersion": version, "kind": "ValidatingAdmissionPolicy", "metadata": map[string]any{"name": name}, "spec": spec},
		{"apiVersion": version, "kind": "ValidatingAdmissionPolicyBinding", "metadata": map[string]any{"name": name}, "spec": map[string]any{
			"policyName": name, "validationActions": []any{"Deny"},
		}},
	}
}
