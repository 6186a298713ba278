package lab

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/rtnl"
)

func (c *dockerContainer) join() error {
	c.d.t.Helper()
	joined, err := c.d.ask("calico", "NetworkDriver.Join", fields{"NetworkID": c.net.id, "EndpointID": c.endpoint, "SandboxKey": c.sandbox})
	if err == nil {
		c.plumb(joined)
	}
	return err
}

// leave takes the link out of the container, as libnetwork does.
func (c *dockerContainer) leave() {
	c.d.t.Helper()
	c.d.driver("Leave", fields{"NetworkID": c.net.id, "EndpointID": c.endpoint})
	c.Run("ip", "link", "set", "cali0", "down")
	c.Run("ip", "link", "set", "cali0", "netns", strconv.Itoa(c.d.plugin.Process.Pid), "name", c.src)
}

// dockerTwoNetworks: dockerd would add the route to the gateway twice, and not start the container.
func dockerTwoNetworks(t *testing.T, hosts []*dockerd) {
	d := hosts[0]
	front, back := d.network("front", "", ""), d.network("back", "", "")
	one, two := d.run(front, ""), d.endpoint(back, "")
	two.sandbox = one.sandbox
	if err := two.join(); err == nil || !strings.Contains(err.Error(), "a container can be in one network of calico") {
		t.Errorf("in a second network: %v", err)
	}
	one.remove(false)
	must(t, two.join()) // docker network disconnect, and connect
	two.remove(false)
}

// dockerJoinsAgain: libnetwork takes all links of a container out and puts them in again when what it is in changes.
func dockerJoinsAgain(t *testing.T, hosts []*dockerd) {
	d := hosts[0]
	n := d.network("front", "", "")
	one, two := d.run(n, ""), d.run(n, "")
	one.leave()
	must(t, one.join())
	one.reaches(t, &two.container, 80)
	one.remove(false)
	two.remove(false)
}

// dockerUpstreams: what upstream's plugin made goes with the endpoint, another's link of another name stays.
func dockerUpstreams(t *testing.T, hosts []*dockerd) {
	d := hosts[0]
	n := d.network("front", "")
	id, other := d.id(), d.id()
	for _, id := range []string{id, other} {
		must(t, d.host.nl.AddVeth(rtnl.Veth{Name: "cali" + id[:11], Peer: "temp" + id[:11]}))
	}
	d.does(t, fmt.Sprintf(`{"kind": "WorkloadEndpoint", "apiVersion": "projectcalico.org/v3",
		"metadata": {"name": "%[1]s-libnetwork-libnetwork-%[2]s", "namespace": "libnetwork"},
		"spec": {"node": %[1]q, "orchestrator": "libnetwork", "workload": "libnetwork", "endpoint": %[2]q, "interfaceName": "cali%.11[2]s",
		"ipNetworks": ["10.66.99.9/32"], "profiles": ["front"]}}`, d.name, id), "apply", "-f", "-")
	d.driver("Leave", fields{"NetworkID": n.id, "EndpointID": id})
	d.driver("DeleteEndpoint", fields{"NetworkID": n.id, "EndpointID": id})
	if left := strings.Join(d.left(), " "); strings.Contains(left, id[:11]) || !strings.Contains(left, other[:11]) {
		t.Errorf("left: %s", left)
	}
	d.driver("DeleteEndpoint", fields{"NetworkID": n.id, "EndpointID": other})
}
