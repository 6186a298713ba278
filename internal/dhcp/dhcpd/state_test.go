package dhcpd

import (
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

func TestWhatMeansNothingChangesNothing(t *testing.T) {
	s := newState("h-1", "paris")
	key := "/calico/resources/v3/projectcalico.org/workloadendpoints/openstack-region-paris/h--1-openstack-vm-p"
	value := `{"metadata":{"name":"h--1-openstack-vm-p","namespace":"openstack-region-paris"},"spec":{"orchestrator":"openstack","workload":"vm","node":"h-1","endpoint":"p","interfaceName":"tap1","mac":"02:00:00:00:00:01","ipNetworks":["10.65.0.7/32","fd00::7/128"]}}`
	subnetKey := "/calico/dhcp/v2/region-paris/subnet/s"
	nodeKey := "/calico/resources/v3/projectcalico.org/nodes/h-1"
	mac := [6]byte{2, 0, 0, 0, 0, 1}
	for _, step := range []struct {
		name, key, value string
		problem          string
		addrs, subnets   int // of the machine that are served; that are known
		id               string
	}{
		{"nothing is known of the subnet", key, value, "", 0, 0, "169.254.1.1"},
		{"of another node", strings.Replace(key, "h--1", "h--1--2", 1), value, "", 0, 0, "169.254.1.1"},
		{"the subnet", subnetKey, `{"cidr":"10.65.0.0/24"}`, "", 1, 1, "169.254.1.1"},
		{"the subnet is no JSON", subnetKey, `[`, "stays", 1, 1, "169.254.1.1"},
		{"the subnet has a server of the other version", subnetKey, `{"cidr":"10.65.0.0/24","dns_servers":["fd00::53"]}`, "dns_servers", 1, 1, "169.254.1.1"},
		{"the node", nodeKey, `{"metadata":{"name":"h-1"},"spec":{"bgp":{"ipv4Address":"192.0.2.1/24"}}}`, "", 1, 1, "192.0.2.1"},
		{"the node is no JSON", nodeKey, `[`, "stays", 1, 1, "192.0.2.1"},
		{"another node", nodeKey + "2", `{"metadata":{"name":"h-12"},"spec":{"bgp":{"ipv4Address":"192.0.2.9/24"}}}`, "", 1, 1, "192.0.2.1"},
		{"the endpoint is no JSON", key, `[`, "stays", 1, 1, "192.0.2.1"},
		{"the endpoint has no MAC address", key, strings.Replace(value, "02:00:00:00:00:01", "", 1), "MAC", -1, 1, "192.0.2.1"},
		{"it has again", key, value, "", 1, 1, "192.0.2.1"},
		{"it is gone", key, "", "", -1, 1, "192.0.2.1"},
		{"the subnet is gone", subnetKey, "", "", -1, 0, "192.0.2.1"},
		{"the node has no address of BGP", nodeKey, `{"metadata":{"name":"h-1"},"spec":{"addresses":[{"address":"198.51.100.1","type":"InternalIP"}]}}`, "", -1, 0, "198.51.100.1"},
		{"the node is gone", nodeKey, "", "", -1, 0, "169.254.1.1"},
	} {
		u := api.Update{Key: step.key, Revision: api.RevisionOf("1")}
		if step.value != "" {
			u.Value = []byte(step.value)
		}
		problems := strings.Join(s.update(u), "; ")
		if !strings.Contains(problems, step.problem) || step.problem == "" && problems != "" {
			t.Errorf("%s: problems %q, want %q", step.name, problems, step.problem)
		}
		_, e, ok := s.find("tap1", mac)
		m := s.machine(e)
		if ok != (step.addrs >= 0) || ok && len(m.Addrs) != step.addrs || len(s.subnets) != step.subnets || s.id().String() != step.id || s.serves("tap1") != ok {
			t.Errorf("%s: machine %v %v, subnets %v, server %s", step.name, m, ok, s.subnets, s.id())
		}
	}
}

// TestAddressesThatAPortMayUseBesidesAreNotServed: allowed address pairs are for what the machine does by itself, such as VRRP.
func TestAddressesThatAPortMayUseBesidesAreNotServed(t *testing.T) {
	s := newState("h1", "")
	for key, value := range map[string]string{
		"/calico/resources/v3/projectcalico.org/workloadendpoints/openstack/h1-openstack-vm-p": `{"metadata":{"name":"h1-openstack-vm-p","namespace":"openstack"},"spec":{"orchestrator":"openstack","workload":"vm","node":"h1",
			"endpoint":"p","interfaceName":"tap1","mac":"02:00:00:00:00:01","ipNetworks":["10.65.0.7/32","fd00::7/128","10.65.0.9/32","fd00::9/128"],"allowedIps":["10.65.0.9/32","fd00::9/128","nonsense"]}}`,
		"/calico/dhcp/v2/no-region/subnet/s4": `{"cidr":"10.65.0.0/24"}`,
		"/calico/dhcp/v2/no-region/subnet/s6": `{"cidr":"fd00::/64"}`,
	} {
		s.update(api.Update{Key: key, Value: []byte(value), Revision: api.RevisionOf("1")})
	}
	_, e, ok := s.find("tap1", [6]byte{2, 0, 0, 0, 0, 1})
	four, six := s.machine(e).Addrs, s.machine6(e).Addrs
	if !ok || len(four) != 1 || four[0].Addr.String() != "10.65.0.7" || len(six) != 1 || six[0].Addr.String() != "fd00::7" {
		t.Errorf("found: %t; it is served %v, %v", ok, four, six)
	}
}

func TestNoMachineTakesTheServerFromOthers(t *testing.T) {
	var l limiter
	now, n := time.Unix(0, 0), 0
	for range 100 {
		if l.allow(1, now) {
			n++
		}
	}
	if n != atOnce || !l.allow(2, now) || l.allow(1, now.Add(time.Millisecond)) || !l.allow(1, now.Add(time.Second/perSecond)) {
		t.Errorf("%d of one machine at once", n)
	}
	now = now.Add(time.Hour)
	for link := range 2 * mostLinks {
		l.allow(link, now.Add(time.Duration(link)*time.Minute))
	}
	if len(l.links) > mostLinks {
		t.Errorf("%d interfaces are remembered", len(l.links))
	}
}
