package openstack

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

// hand hands a port over by itself, or by a resync, and returns the problems.
func (p *plugin) hand(resync bool, port string) []string {
	p.t.Helper()
	if resync {
		return p.begin()(`{"ports": [` + port + `]}`).Problems
	}
	var a answer
	if err := json.Unmarshal([]byte(p.ok("PUT", "/v1/ports/a", port)), &a); err != nil {
		p.t.Fatal(err)
	}
	return a.Problems
}

// TestAPortThatCannotBeExpressedIsClosed: nothing of what it was stays in force, such as an address that Neutron has given to another port
// since.
func TestAPortThatCannotBeExpressedIsClosed(t *testing.T) {
	for _, c := range []struct{ was, is, problem string }{
		{`"device_id": "vm"`, `"device_id": "-x"`, "dash"},
		{`"device_id": "vm"`, `"device_id": "a/b"`, "must not contain /"},
		{"10.65.0.5", "10.65", "fixed_ips"},
		{"fa:16:3e:00:00:01", "fa", "mac"},
	} {
		for _, resync := range []bool{false, true} {
			p := start(t, memstore.New())
			p.ok("PUT", "/v1/ports/a", migrating("a", "h1", 1, "h2"))
			bad := strings.Replace(migrating("a", "h1", 2, "h2"), c.was, c.is, 1)
			if problems := p.hand(resync, bad); len(problems) != 1 || !strings.Contains(problems[0], c.problem) || !strings.Contains(problems[0], "no endpoint") {
				t.Errorf("%s (resync: %t): problems %q", c.is, resync, problems)
			}
			p.holds(fmt.Sprintf("%s (resync: %t)", c.is, resync))
			p.hand(resync, portOf("a", "h1", 3))
			p.holds("once it can be expressed again", "h1-openstack-vm-a")
		}
	}
}

// TestAFloatingAddressOfNoAddressIsLeftOut: the port has the addresses that Neutron gives it now.
func TestAFloatingAddressOfNoAddressIsLeftOut(t *testing.T) {
	floating := `"floating_ips": [{"fixed_ip_address": "10.65.0.5", "floating_ip_address": "192.0.2.5"}], "device_id"`
	for _, resync := range []bool{false, true} {
		p := start(t, memstore.New())
		with := func(revision int) string {
			return strings.Replace(portOf("a", "h1", revision), `"device_id"`, floating, 1)
		}
		if problems := p.hand(resync, with(1)); len(problems) > 0 {
			t.Error(problems)
		}
		if problems := p.hand(resync, strings.Replace(with(2), `"ip_address": "10.65.0.5"`, `"ip_address": "10.65.0.6"`, 1)); len(problems) != 1 || !strings.Contains(problems[0], "192.0.2.5") {
			t.Errorf("resync: %t: problems %q", resync, problems)
		}
		u, err := p.store.Get(t.Context(), api.KeyPrefix(api.KindWorkloadEndpoint, "openstack")+"h1-openstack-vm-a")
		if err != nil {
			t.Fatal(err)
		}
		st, err := api.DecodeStored(u)
		if err != nil {
			t.Fatal(err)
		}
		if e, _ := st.Resource.(*api.WorkloadEndpoint); !slices.Equal(e.Spec.IPNetworks, []string{"10.65.0.6/32"}) || len(e.Spec.IPNATs) != 0 {
			t.Errorf("resync: %t: addresses %v, floating %v", resync, e.Spec.IPNetworks, e.Spec.IPNATs)
		}
	}
}

// TestAGroupWithTooManyRulesIsClosed: rules that Neutron has taken away do not stay because there are too many others.
func TestAGroupWithTooManyRulesIsClosed(t *testing.T) {
	var rules []string
	for i := range 1025 {
		rules = append(rules, fmt.Sprintf(`{"id": "r%d", "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": %d, "port_range_max": %d}`, i, i+1, i+1))
	}
	p := start(t, memstore.New())
	p.ok("PUT", "/v1/security-groups/g", groupG)
	code, got := p.call("PUT", "/v1/security-groups/g", `{"id": "g", "revision_number": 1, "security_group_rules": [`+strings.Join(rules, ",")+`]}`)
	if code != http.StatusOK || !strings.Contains(got, "at most 1024") {
		t.Errorf("it is answered %d %s", code, got)
	}
	u, err := p.store.Get(t.Context(), api.KeyPrefix(api.KindNetworkPolicy, "openstack")+"ossg.default.g")
	if err != nil {
		t.Fatal(err)
	}
	st, err := api.DecodeStored(u)
	if err != nil {
		t.Fatal(err)
	}
	if n, _ := st.Resource.(*api.NetworkPolicy); len(n.Spec.Ingress)+len(n.Spec.Egress) != 0 || !cmp.Equal(n.Spec.Types, []api.PolicyType{api.Ingress, api.Egress}) {
		t.Errorf("%d and %d rules, types %v", len(n.Spec.Ingress), len(n.Spec.Egress), n.Spec.Types)
	}
}

// TestALiveMigrationOfNoEndpointGoes: in Neutron's namespace all of them are its own, whatever their names are.
func TestALiveMigrationOfNoEndpointGoes(t *testing.T) {
	p := start(t, memstore.New())
	for _, name := range []string{"vm", "h1-k8s-web-eth0"} {
		value := `{"kind":"LiveMigration","metadata":{"name":"` + name + `","namespace":"openstack"},"spec":{"target":{"selector":"all()"}}}`
		if _, err := p.store.Create(t.Context(), api.Update{Key: api.KeyPrefix(api.KindLiveMigration, "openstack") + name, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	p.hand(true, migrating("a", "h1", 1, "h2"))
	p.holds("after a resync", keysOfPort(t, migrating("a", "h1", 1, "h2"))...)
}

// lines are those of a log.
type lines chan string

func (l lines) Write(b []byte) (int, error) {
	select {
	case l <- string(b):
	default: // nobody reads any more
	}
	return len(b), nil
}

// TestARegionThatIsNewLeavesWhatWasWithoutIt: the same servers may have written it before, or those of a region without a name still do. People are to
// know of it, and to decide.
func TestARegionThatIsNewLeavesWhatWasWithoutIt(t *testing.T) {
	store := memstore.New()
	policies := api.KeyPrefix(api.KindNetworkPolicy, "openstack")
	for _, key := range []string{policies + "ossg.default.x", policies + "own", "/calico/dhcp/v2/no-region/subnet/s"} {
		if _, err := store.Create(t.Context(), api.Update{Key: key, Value: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[region]int{"": 0, "paris": 1} {
		if n, err := (&writer{store: store, region: name}).withoutRegion(t.Context()); n != want || err != nil {
			t.Errorf("region %q: %d resources, %v, want %d", name, n, err, want)
		}
	}
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	log := make(lines, 100)
	go func() {
		ended <- Run(ctx, Config{Store: store, Region: "paris", Socket: filepath.Join(t.TempDir(), "s"), Log: slog.New(slog.NewTextHandler(log, nil))})
	}()
	for line := range log { // until it comes
		if strings.Contains(line, "without a region") && strings.Contains(line, "resources=1") && strings.Contains(line, "twill delete namespace openstack") {
			break
		}
	}
	end()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
