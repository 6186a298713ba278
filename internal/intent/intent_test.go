package intent

import "testing"

func TestParseIsTheReverseOfString(t *testing.T) {
	for _, id := range []PolicyID{
		{"NetworkPolicy", "prod", "web"},
		{"GlobalNetworkPolicy", "", "web"},
		{"StagedKubernetesNetworkPolicy", "prod", "web"},
		{"Profile", "", "kns.prod"},
		{"Profile", "", "a/b"}, // a profile that an endpoint names, and that cannot exist
		{"Profile", "", ""},
	} {
		if got, ok := ParsePolicyID(id.String()); !ok || got != id {
			t.Errorf("ParsePolicyID(%q) = %+v, %v; want %+v", id, got, ok, id)
		}
	}
	for _, id := range []EndpointID{
		{Workload, "prod", "h1-k8s-web-eth0"},
		{Workload, "prod", "a/b"},
		{Host, "", "h1-eth0"},
		{Host, "", "a/b"},
	} {
		if got, ok := ParseEndpointID(id.String()); !ok || got != id {
			t.Errorf("ParseEndpointID(%q) = %+v, %v; want %+v", id, got, ok, id)
		}
	}
	if id, ok := ParsePolicyID("web"); ok {
		t.Errorf("a text without a kind is policy %+v", id)
	}
	for _, text := range []string{"", "workload/web", "10.65.0.0/26"} {
		if id, ok := ParseEndpointID(text); ok {
			t.Errorf("%q is endpoint %+v", text, id)
		}
	}
}
