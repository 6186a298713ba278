package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// dockerd calls the plugin of a host as Docker's does, and does with a container's link what libnetwork does. The names of its networks are
// asked for at the API that it is.
type dockerd struct {
	*Lab
	t      testing.TB
	name   string // of the host
	host   *place
	dir    string // of the plugin's sockets and state
	plugin *exec.Cmd
	ids    *int
	names  *sync.Map // of networks, by ID
}

func newDockerds(t testing.TB) []*dockerd {
	out := newPlugins(t)
	for _, d := range out {
		listener, err := net.Listen("unix", filepath.Join(d.dir, "docker.sock"))
		must(t, err)
		api := &http.Server{Handler: http.HandlerFunc(d.api)} //nolint:gosec // of a test
		t.Cleanup(func() { api.Close() })
		go func() { _ = api.Serve(listener) }()
	}
	return out
}

// newPlugins makes two hosts with plugins.
func newPlugins(t testing.TB) (out []*dockerd) {
	s := Spec{Hosts: Demo().Hosts[:2], Manifests: []byte(cniPools)}
	l, ids := testLab(t, s), new(int)
	for i := range l.Spec.Hosts {
		dir, err := os.MkdirTemp("", "twd-") // sockets' paths are short
		must(t, err)
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		d := &dockerd{Lab: l, t: t, name: l.Spec.Hosts[i].Name, dir: dir, ids: ids, names: &sync.Map{}}
		d.host, err = open(l.Spec.hostNS(l.Spec.Hosts[i]))
		must(t, err)
		t.Cleanup(d.host.close)
		d.start()
		t.Cleanup(d.stop)
		out = append(out, d)
	}
	return out
}

// api answers what a network is called.
func (d *dockerd) api(w http.ResponseWriter, r *http.Request) {
	name, ok := d.names.Load(strings.TrimPrefix(r.URL.Path, "/networks/"))
	if !ok {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"Name": name})
}

// collectAfter is long enough for a busy machine to make an endpoint, and to look at it.
const collectAfter = 15 * time.Second

// start starts the plugin.
func (d *dockerd) start() {
	d.t.Helper()
	d.plugin = exec.Command(d.Exe, "docker-plugin", "--socket", d.AgentSocket(d.name), "--plugins-dir", d.dir, "--docker-socket", filepath.Join(d.dir, "docker.sock"), "--state-dir", d.dir, "--labels", "true", "--collect-after", collectAfter.String())
	log, err := os.OpenFile(filepath.Join(d.Dir, d.name, "docker-plugin.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(d.t, err)
	defer log.Close()
	d.plugin.Stderr = log
	must(d.t, d.host.ns.Start(d.plugin))
	await(d.t, "the plugin answers", func() bool {
		_, err := d.ask("calico", "Plugin.Activate", nil)
		_, other := d.ask("calico-ipam", "Plugin.Activate", nil)
		return err == nil && other == nil
	})
}

func (d *dockerd) stop() {
	_ = d.plugin.Process.Signal(syscall.SIGTERM)
	_ = d.plugin.Wait()
}

type fields = map[string]any

// ask makes one call, and returns the reason of a failure as an error.
func (d *dockerd) ask(driver, method string, in any) (out fields, err error) {
	var body []byte
	if in != nil { // else it has none, as dockerd sends it
		body = must2(json.Marshal(in))(d.t)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(d.dir, driver+".sock"))
	}}}
	answer, err := client.Post("http://plugin/"+method, "application/vnd.docker.plugins.v1.2+json", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	must(d.t, err)
	if err := json.Unmarshal(text, &out); err != nil {
		return nil, fmt.Errorf("%s answers %s: %q", method, answer.Status, text)
	}
	if why, _ := out["Err"].(string); why != "" || answer.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", method, answer.Status, why)
	}
	return out, nil
}

func (d *dockerd) driver(method string, in any) fields {
	d.t.Helper()
	return must2(d.ask("calico", "NetworkDriver."+method, in))(d.t)
}

func (d *dockerd) ipam(method string, in any) fields {
	d.t.Helper()
	return must2(d.ask("calico-ipam", "IpamDriver."+method, in))(d.t)
}

func (d *dockerd) id() string {
	*d.ids++
	return fmt.Sprintf("%08x%056x", *d.ids, os.Getpid())
}

// dockerNet is a network: its pools.
type dockerNet struct {
	id    string
	pools []string
}

// network creates one, as "docker network create --driver calico --ipam-driver calico-ipam".
func (d *dockerd) network(name string, subnets ...string) dockerNet {
	d.t.Helper()
	n := dockerNet{id: d.id()}
	d.names.Store(n.id, name)
	space := d.ipam("GetDefaultAddressSpaces", nil)["LocalDefaultAddressSpace"]
	ask := fields{"NetworkID": n.id, "Options": fields{"com.docker.network.enable_ipv6": len(subnets) > 1, "com.docker.network.generic": fields{}}}
	for i, subnet := range subnets {
		p := d.requestPool(fields{"AddressSpace": space, "Pool": subnet, "V6": i == 1})
		n.pools = append(n.pools, p["PoolID"].(string))
		ask[[]string{"IPv4Data", "IPv6Data"}[i]] = []fields{{"AddressSpace": space, "Pool": p["Pool"], "Gateway": p["Data"].(fields)["com.docker.network.gateway"]}}
	}
	d.driver("CreateNetwork", ask)
	return n
}

// requestPool asks for a pool as a network of scope local has it asked for: again, as long as the answer is neither what was named nor 0.0.0.0/0, and
// overlaps what the host uses itself, such as the nameservers of its resolv.conf.
func (d *dockerd) requestPool(ask fields) fields {
	d.t.Helper()
	nameserver := netip.MustParsePrefix("2001:db8::53/128")
	for range 3 {
		p := d.ipam("RequestPool", ask)
		got := netip.MustParsePrefix(p["Pool"].(string))
		if ask["Pool"] != "" || got.String() == "0.0.0.0/0" || !got.Overlaps(nameserver) {
			return p
		}
	}
	d.t.Fatalf("RequestPool %v answers with what overlaps %s, always: dockerd asks for ever", ask, nameserver)
	return nil
}

// dockerContainer is a container in a network.
type dockerContainer struct {
	container
	d        *dockerd
	net      dockerNet
	endpoint string
	sandbox  string // dockerd's name of its namespace
	src      string // name of its link on the host
}

// run puts a container into a network, with the addresses and the hardware address that it asks for, if any.
func (d *dockerd) run(n dockerNet, mac string, asked ...string) *dockerContainer {
	d.t.Helper()
	c := d.endpoint(n, mac, asked...)
	must(d.t, c.join())
	return c
}

// endpoint makes a container's endpoint.
func (d *dockerd) endpoint(n dockerNet, mac string, asked ...string) *dockerContainer {
	d.t.Helper()
	c := &dockerContainer{container: container{NS: netnstest.New(d.t)}, d: d, net: n, endpoint: d.id(), sandbox: "/var/run/docker/netns/" + d.id()}
	link := fields{"MacAddress": mac}
	for i, pool := range n.pools {
		ask := fields{"PoolID": pool}
		if i < len(asked) {
			ask["Address"] = asked[i]
		}
		text := d.ipam("RequestAddress", ask)["Address"].(string)
		link[[]string{"Address", "AddressIPv6"}[i]] = text
		c.addrs = append(c.addrs, netip.MustParsePrefix(text).Addr())
	}
	made := d.driver("CreateEndpoint", fields{"NetworkID": n.id, "EndpointID": c.endpoint, "Interface": link})
	if made, _ := made["Interface"].(fields)["MacAddress"].(string); (made == "") != (mac != "") {
		d.t.Errorf("asked for the hardware address %q, the answer is %q", mac, made)
	}
	return c
}

// plumb moves the link into the container, and sets it up, as libnetwork does.
func (c *dockerContainer) plumb(joined fields) {
	t := c.d.t
	t.Helper()
	holder := exec.Command("sleep", "1000") // whose namespace has a name for ip
	must(t, c.Handle().Start(holder))
	defer func() { _ = holder.Process.Kill(); _ = holder.Wait() }()
	name := joined["InterfaceName"].(fields)["DstPrefix"].(string) + "0"
	c.src = joined["InterfaceName"].(fields)["SrcName"].(string)
	if out, err := c.d.host.ns.Output(t.Context(), "ip", "link", "set", c.src, "netns", strconv.Itoa(holder.Process.Pid), "name", name); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, a := range c.addrs {
		c.Run("ip", "address", "add", netip.PrefixFrom(a, a.BitLen()).String(), "dev", name, "nodad")
	}
	c.Run("ip", "link", "set", name, "up")
	for _, r := range joined["StaticRoutes"].([]any) {
		c.Run("ip", "route", "add", r.(fields)["Destination"].(string), "dev", name, "scope", "link")
	}
	for _, gateway := range []string{"Gateway", "GatewayIPv6"} {
		if via, _ := joined[gateway].(string); via != "" {
			c.Run("ip", "route", "add", "default", "via", via, "dev", name)
		}
	}
}

// remove takes the container away; gone: with its namespace, so that its link is gone before the plugin hears of it.
func (c *dockerContainer) remove(gone bool) {
	t := c.d.t
	t.Helper()
	of := fields{"NetworkID": c.net.id, "EndpointID": c.endpoint}
	c.d.driver("Leave", of)
	if gone {
		c.Delete("cali0")
	}
	c.d.driver("DeleteEndpoint", of)
	for i, a := range c.addrs {
		c.d.ipam("ReleaseAddress", fields{"PoolID": c.net.pools[i], "Address": a.String()})
	}
}

// left is what there still is of containers.
func (d *dockerd) left() []string {
	d.t.Helper()
	r := &caller{Lab: d.Lab, t: d.t, host: d.host}
	out := r.left()
	links, err := d.host.nl.Links()
	must(d.t, err)
	for _, l := range links {
		if strings.HasPrefix(l.Name, "temp") {
			out = append(out, "link "+l.Name)
		}
	}
	return out
}

func TestDockersPlugin(t *testing.T) {
	hosts := newDockerds(t)
	for name, test := range map[string]func(*testing.T, []*dockerd){
		"containers of two hosts reach each other by policy": dockerByPolicy,
		"addresses that are asked for":                       dockerAsked,
		"what is refused, and why":                           dockerRefuses,
		"a container in two networks is refused":             dockerTwoNetworks,
		"an endpoint leaves and joins again":                 dockerJoinsAgain,
		"what upstream's plugin made goes with the endpoint": dockerUpstreams,
		"fifty containers leave nothing":                     dockerFifty,
		"the plugin is started anew":                         dockerPluginRestarts,
		"the agent is away when a container goes":            dockerWithoutAgent,
	} {
		t.Run(name, func(t *testing.T) {
			var ours []*dockerd
			for _, d := range hosts {
				inner := *d
				inner.t = t
				ours = append(ours, &inner)
			}
			test(t, ours)
			for i, d := range ours {
				hosts[i].plugin = d.plugin
				var left []string
				await(t, "nothing is left of any container", func() bool { left = d.left(); return len(left) == 0 || t.Context().Err() != nil })
			}
		})
	}
}

func dockerByPolicy(t *testing.T, hosts []*dockerd) {
	a, b := hosts[0], hosts[1]
	front := []dockerNet{a.network("front", "", ""), b.network("front", "", "")}
	back := b.network("back", "", "")
	one, two, near, other := a.run(front[0], ""), b.run(front[1], ""), a.run(front[0], ""), b.run(back, "")
	for _, to := range []*dockerContainer{two, near} {
		one.awaits(to, 80)
		one.reaches(t, &to.container, 81)
	}
	one.blocked(other, 80) // the profile of the network back lets its own members in alone
	r := &caller{Lab: a.Lab, t: t, host: a.host}
	undo := r.onlyPort80()
	await(t, "policy is in force for the containers", func() bool { return one.tries(two, 81) != nil && one.tries(near, 81) != nil })
	one.reaches(t, &two.container, 80)
	late := b.run(front[1], "") // whose policy is in force when it is joined
	one.blocked(late, 81)
	one.reaches(t, &late.container, 80)
	undo()
	if out := a.does(t, "", "ipam", "check"); strings.Contains(out, one.addrs[0].String()) {
		t.Errorf("an address of Docker's is called leaked: %s", out)
	}
	out := a.does(t, "", "get", "workloadendpoints", "-o", "json")
	for _, want := range []string{`"orchestrator": "libnetwork"`, `"workload": "libnetwork"`, `"endpoint": "` + one.endpoint + `"`, `"interfaceName": "cali` + one.endpoint[:11] + `"`} {
		if !strings.Contains(out, want) {
			t.Errorf("endpoints lack %s", want)
		}
	}
	for _, c := range []*dockerContainer{one, two, near, other, late} {
		c.remove(c == near)
	}
}

// tries is an exchange on IPv4.
func (c *dockerContainer) tries(to *dockerContainer, port uint16) error {
	return netnstest.Probe{From: c.NS, To: to.NS, Proto: "tcp", Src: c.addrs[0], Dst: netip.AddrPortFrom(to.addrs[0], port)}.Try(300e6)
}

// awaits waits for the route between hosts.
func (c *dockerContainer) awaits(to *dockerContainer, port uint16) {
	c.d.t.Helper()
	await(c.d.t, "the containers reach each other", func() bool { return c.tries(to, port) == nil })
}

func (c *dockerContainer) blocked(to *dockerContainer, port uint16) {
	c.d.t.Helper()
	for i, a := range to.addrs {
		netnstest.Probe{From: c.NS, To: to.NS, Proto: "tcp", Src: c.addrs[i], Dst: netip.AddrPortFrom(a, port)}.WantBlocked(c.d.t)
	}
}

func dockerAsked(t *testing.T, hosts []*dockerd) {
	d := hosts[0]
	n := d.network("asked", "10.67.0.0/24")
	c := d.run(n, "02:00:00:00:00:07", "10.67.0.7")
	defer c.remove(false)
	if got := c.Link("cali0"); got.MAC != "02:00:00:00:00:07" || c.addrs[0] != netip.MustParseAddr("10.67.0.7") {
		t.Errorf("it has %v %v", got, c.addrs)
	}
	if _, err := d.ask("calico-ipam", "IpamDriver.RequestAddress", fields{"PoolID": n.pools[0], "Address": "10.67.0.7"}); err == nil || !strings.Contains(err.Error(), "10.67.0.7") {
		t.Errorf("an address that another has: %v", err)
	}
	again := d.run(n, "")
	if !netip.MustParsePrefix("10.67.0.0/24").Contains(again.addrs[0]) {
		t.Errorf("of the pool 10.67.0.0/24 it has %v", again.addrs)
	}
	again.remove(false)
}

func dockerRefuses(t *testing.T, hosts []*dockerd) {
	d := hosts[0]
	n := d.network("front", "")
	hyphen := d.network("My_Net", "")
	space := fields{"AddressSpace": "CalicoLocalAddressSpace", "Pool": "0.0.0.0/0"}
	network := func(with fields) fields {
		out := fields{"NetworkID": d.id(), "IPv4Data": []fields{space}}
		maps.Copy(out, with)
		return out
	}
	endpoint := func(network string, with fields) fields {
		return fields{"NetworkID": network, "EndpointID": d.id(), "Interface": with}
	}
	for _, tt := range []struct {
		name, method string
		in           any // nil: no body
		want         []string
	}{
		{"a subnet without a pool", "RequestPool", fields{"Pool": "10.99.0.0/24"}, []string{"--subnet 10.99.0.0/24", "no IPPool has the cidr"}},
		{"a subnet of the other family", "RequestPool", fields{"Pool": "10.66.0.0/16", "V6": true}, []string{"want the cidr"}},
		{"a range", "RequestPool", fields{"Pool": "10.66.0.0/16", "SubPool": "10.66.1.0/24"}, []string{"--ip-range"}},
		{"options of IPAM", "RequestPool", fields{"Options": fields{"a": "b"}}, []string{"--ipam-opt"}},
		{"a gateway", "RequestAddress", fields{"PoolID": n.pools[0], "Address": "10.66.0.1", "Options": fields{"RequestAddressType": "com.docker.network.gateway"}}, []string{"--gateway 10.66.0.1", "169.254.1.1"}},
		{"an address of no pool", "RequestAddress", fields{"PoolID": n.pools[0], "Address": "192.0.2.1"}, []string{"192.0.2.1"}},
		{"a pool of nobody's", "RequestAddress", fields{"PoolID": "x"}, []string{`"x" is no pool`}},
		{"another IPAM driver", "CreateNetwork", fields{"NetworkID": d.id(), "IPv4Data": []fields{{"AddressSpace": "LocalDefault", "Pool": "172.18.0.0/16"}}}, []string{"--ipam-driver calico-ipam"}},
		{"an option", "CreateNetwork", network(fields{"Options": fields{"com.docker.network.generic": fields{"parent": "eth0"}}}), []string{"--opt parent"}},
		{"internal", "CreateNetwork", network(fields{"Options": fields{"com.docker.network.internal": true}}), []string{"--internal"}},
		{"an ID that is a path", "CreateEndpoint", endpoint("../../etc/x", fields{"Address": "10.66.0.9/32"}), []string{"are not the IDs"}},
		{"no address", "CreateEndpoint", endpoint(n.id, nil), []string{"has no address"}},
		{"a group's hardware address", "CreateEndpoint", endpoint(n.id, fields{"Address": "10.66.0.9/32", "MacAddress": "03:00:00:00:00:01"}), []string{"--mac-address 03:00:00:00:00:01"}},
		{"a network whose name no profile can have", "CreateEndpoint", endpoint(hyphen.id, fields{"Address": "10.66.0.9/32"}), []string{"My_Net"}},
		{"a network that Docker's API does not know", "CreateEndpoint", endpoint(d.id(), fields{"Address": "10.66.0.9/32"}), []string{"the name of the network is not known"}},
		{"an endpoint that was never made", "Join", fields{"NetworkID": n.id, "EndpointID": d.id()}, []string{"start the container again"}},
		{"published ports", "ProgramExternalConnectivity", fields{"NetworkID": n.id, "EndpointID": d.id(), "Options": fields{"com.docker.network.portmap": []any{fields{"Port": 80}}}}, []string{"--publish"}},
		{"a pool, asked for again without the question", "RequestPool", nil, []string{"no fields"}},
		{"published ports, asked for again without the question", "ProgramExternalConnectivity", nil, []string{"no fields"}},
		{"a call of a later Docker", "Whatever", fields{}, []string{"404", "no such call"}}, // it takes 404 for a driver that need not have it
	} {
		driver, kind := "calico", "NetworkDriver."
		if slices.Contains([]string{"RequestPool", "RequestAddress"}, tt.method) {
			driver, kind = "calico-ipam", "IpamDriver."
		}
		_, err := d.ask(driver, kind+tt.method, tt.in)
		for _, want := range tt.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", tt.name, err, want)
			}
		}
	}
	d.driver("ProgramExternalConnectivity", fields{"NetworkID": n.id, "EndpointID": d.id(), "Options": fields{}})
	d.driver("DeleteEndpoint", fields{"NetworkID": n.id, "EndpointID": d.id()}) // nothing to do is no failure
	d.driver("DeleteNetwork", fields{"NetworkID": hyphen.id})
	d.ipam("ReleaseAddress", fields{"PoolID": n.pools[0], "Address": "0.0.0.0"})
	d.ipam("ReleasePool", fields{"PoolID": n.pools[0]})
}

func dockerFifty(_ *testing.T, hosts []*dockerd) {
	d := hosts[0]
	n := d.network("front", "", "")
	for range 50 {
		d.run(n, "").remove(false)
	}
	d.driver("DeleteNetwork", fields{"NetworkID": n.id})
}

func dockerPluginRestarts(t *testing.T, hosts []*dockerd) {
	d := hosts[0]
	n := d.network("front", "")
	one, two := d.run(n, ""), d.run(n, "")
	must(t, d.plugin.Process.Kill())
	_ = d.plugin.Wait()
	one.reaches(t, &two.container, 80)
	d.names.Delete(n.id) // dockerd's API does not answer yet
	d.start()
	three := d.run(n, "")
	one.reaches(t, &three.container, 80)
	for _, c := range []*dockerContainer{one, two, three} {
		c.remove(false)
	}
}

func dockerWithoutAgent(t *testing.T, hosts []*dockerd) {
	d := hosts[0]
	n := d.network("front", "")
	c := d.run(n, "")
	pid, socket := d.agentPID(d.Spec.Hosts[0]), d.AgentSocket(d.name)
	machinetest.Freeze(t, pid) // so that its supervisor does not start another
	must(t, os.Rename(socket, socket+".away"))
	if _, err := d.ask("calico-ipam", "IpamDriver.RequestAddress", fields{"PoolID": n.pools[0]}); err == nil || !strings.Contains(err.Error(), "no agent answers on this host") {
		t.Errorf("without an agent: %v", err)
	}
	d.driver("DeleteEndpoint", fields{"NetworkID": n.id, "EndpointID": c.endpoint})
	if _, err := d.host.nl.Link("cali" + c.endpoint[:11]); err == nil {
		t.Error("without an agent the link stays")
	}
	must(t, os.Rename(socket+".away", socket))
	must(t, syscall.Kill(pid, syscall.SIGCONT))
	d.ipam("ReleaseAddress", fields{"PoolID": n.pools[0], "Address": c.addrs[0].String()})
}
