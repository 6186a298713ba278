package lab

import (
	"bufio"
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// engine is a host's dockerd, Debian's, with namespaces of its own for mounts: it finds our plugin alone.
type engine struct {
	*dockerd
	holder *exec.Cmd // has the namespace
	daemon *exec.Cmd
	live   bool // containers go on while it is away
}

// engineScript hides what dockerd would write on this machine outside its directories (/run, /etc/docker, /opt/containerd).
const engineScript = `
mount -t tmpfs tmpfs /run
mkdir -p /run/docker/plugins
mount --bind "$DIR" /run/docker/plugins
mount -t overlay -o lowerdir=/etc,upperdir="$DIR/etc",workdir="$DIR/work" overlay /etc
mount -t tmpfs tmpfs /opt
echo ready
exec sleep infinity
`

// image has one program, hack/kubecluster/probe.
func image(t testing.TB) []byte {
	dir := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(dir, "probe"), "github.com/twillnet/twill/hack/kubecluster/probe").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return must2(exec.Command("tar", "-C", dir, "-c", "probe").Output())(t)
}

func newEngines(t testing.TB) (out []*engine) {
	machinetest.Docker(t)
	tar := image(t)
	for _, d := range newPlugins(t) {
		e := &engine{dockerd: d, live: d.name == "h2"}
		for _, sub := range []string{"etc", "work"} {
			must(t, os.Mkdir(filepath.Join(d.dir, sub), 0o755))
		}
		e.hold()
		e.begin()
		t.Cleanup(e.down)
		load := e.command("import", "-c", `ENTRYPOINT ["/probe"]`, "-", "probe:1")
		load.Stdin = bytes.NewReader(tar)
		if out, err := load.CombinedOutput(); err != nil {
			t.Fatalf("docker import: %v\n%s", err, out)
		}
		out = append(out, e)
	}
	return out
}

func (e *engine) cgroup() string { return e.Spec.Prefix + e.name }

// hold makes the namespace.
func (e *engine) hold() {
	e.t.Helper()
	e.holder = exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-euc", engineScript)
	e.holder.Env = append(os.Environ(), "DIR="+e.dir)
	out := must2(e.holder.StdoutPipe())(e.t)
	must(e.t, e.host.ns.Start(e.holder))
	e.t.Cleanup(func() { _ = e.holder.Process.Kill(); _ = e.holder.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		e.t.Fatalf("the namespace of dockerd is not ready: %q, %v", line, err)
	}
}

// begin starts dockerd.
func (e *engine) begin() {
	e.t.Helper()
	log := must2(os.OpenFile(filepath.Join(e.Dir, e.name, "dockerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(e.t)
	defer log.Close()
	in := func(name string) string { return filepath.Join(e.dir, name) }
	e.daemon = exec.Command("nsenter", "-t", strconv.Itoa(e.holder.Process.Pid), "-m", "dockerd", "--data-root", in("data"), "--exec-root", in("exec"), "-p", in("dockerd.pid"),
		"-H", "unix://"+in("docker.sock"), "--cgroup-parent", "/"+e.cgroup(), "--live-restore="+strconv.FormatBool(e.live),
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
	e.daemon.Stdout, e.daemon.Stderr = log, log
	must(e.t, e.host.ns.Start(e.daemon))
	await(e.t, "dockerd answers", func() bool { return e.command("version").Run() == nil })
}

// end ends dockerd, and its containerd.
func (e *engine) end(how syscall.Signal) {
	_ = e.daemon.Process.Signal(how)
	_ = e.daemon.Wait()
}

func (e *engine) down() {
	if e.t.Failed() {
		log, _ := exec.Command("grep", "-v", "module=grpc\\|loading plugin\\|skip loading", filepath.Join(e.Dir, e.name, "dockerd.log")).Output()
		plugin, _ := os.ReadFile(filepath.Join(e.Dir, e.name, "docker-plugin.log"))
		e.t.Logf("%s: dockerd\n%s\nplugin\n%s", e.name, log[max(0, len(log)-3000):], plugin[max(0, len(plugin)-3000):])
	}
	if ids, err := e.command("ps", "-aq").Output(); err == nil && len(ids) > 0 { // one that ignores SIGTERM holds dockerd's end up
		_ = e.command(append([]string{"rm", "-f"}, strings.Fields(string(ids))...)...).Run()
	}
	e.end(syscall.SIGTERM)
	e.killRest()
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + e.cgroup())
	for _, dir := range append(groups, "/sys/fs/cgroup/"+e.cgroup()) {
		_ = os.Remove(dir) // empty ones alone go
	}
}

// killRest kills what a dockerd that did not end as asked left of its containers: the processes below this host's directory and cgroup.
func (e *engine) killRest() {
	all, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range all {
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		groups, _ := os.ReadFile(filepath.Join(dir, "cgroup"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		if err == nil && (bytes.Contains(args, []byte(filepath.Join(e.dir, "exec")+"/")) || bytes.Contains(groups, []byte("/"+e.cgroup()+"/"))) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func (e *engine) command(args ...string) *exec.Cmd {
	cmd := exec.CommandContext(e.t.Context(), "/usr/bin/docker", append([]string{"-H", "unix://" + filepath.Join(e.dir, "docker.sock")}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+e.dir)
	return cmd
}

// docker is the command line of Docker's, of the same package as dockerd, which must succeed.
func (e *engine) docker(args ...string) string {
	e.t.Helper()
	out, err := e.command(args...).CombinedOutput()
	if err != nil {
		e.t.Fatalf("docker %v: %v\n%s", args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// refuses is one that must fail, and say why.
func (e *engine) refuses(want string, args ...string) {
	e.t.Helper()
	out, err := e.command(args...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), want) {
		e.t.Errorf("docker %v: %v, want %q:\n%s", args, err, want, out)
	}
}

// address is a container's, of one family.
func (e *engine) address(container, field string) string {
	e.t.Helper()
	return e.docker("inspect", "-f", "{{range .NetworkSettings.Networks}}{{."+field+"}}{{end}}", container)
}

// gets reports whether a container gets an answer from an address.
func (e *engine) gets(from, address string) error {
	e.t.Helper()
	return e.getsWithin(from, address, 3*time.Second)
}

func (e *engine) getsWithin(from, address string, d time.Duration) error {
	e.t.Helper()
	out, err := e.command("exec", from, "/probe", "get", fmt.Sprintf("http://%s:8080", address), d.String()).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

var dockerCreate = []string{"network", "create", "--driver", "calico", "--ipam-driver", "calico-ipam"}

func (e *engine) create(args ...string) { e.t.Helper(); e.docker(append(dockerCreate, args...)...) }

func TestDockerdsContainers(t *testing.T) {
	engines := newEngines(t)
	for name, test := range map[string]func(*testing.T, []*engine){
		"two hosts":                     engineTwoHosts,
		"refused":                       engineRefuses,
		"labels":                        engineLabels,
		"plugin and dockerd are killed": engineKilled,
		"dockerd lost its data":         engineForgets,
		"a compose file many times":     engineCompose,
	} {
		t.Run(name, func(t *testing.T) {
			var ours []*engine
			for _, e := range engines {
				d := *e.dockerd
				d.t = t
				ours = append(ours, &engine{dockerd: &d, holder: e.holder, daemon: e.daemon, live: e.live})
			}
			test(t, ours)
			for i, e := range ours {
				engines[i].daemon, engines[i].plugin = e.daemon, e.plugin
				var left []string
				await(t, "nothing is left of any container", func() bool { left = e.left(); return len(left) == 0 || t.Context().Err() != nil })
			}
		})
	}
}

func engineTwoHosts(t *testing.T, all []*engine) {
	a, b := all[0], all[1]
	for _, e := range all {
		e.create("--ipv6", "--subnet", "10.66.0.0/16", "--subnet", "fd66::/48", "front")
		e.create("--ipv6", "back")
	}
	b.docker("run", "-d", "--name", "web", "--network", "front", "--ip", "10.66.77.7", "--mac-address", "02:00:00:00:00:07", "probe:1", "serve")
	b.docker("run", "-d", "--name", "other", "--network", "back", "probe:1", "serve")
	a.docker("run", "-d", "--name", "near", "--network", "front", "probe:1", "serve")
	a.docker("run", "-d", "--name", "one", "--network", "front", "probe:1")
	if got := b.address("web", "IPAddress"); got != "10.66.77.7" {
		t.Errorf("asked for 10.66.77.7 it has %s", got)
	}
	await(t, "one reaches web", func() bool { return a.gets("one", "10.66.77.7") == nil })
	for _, address := range []string{"[" + b.address("web", "GlobalIPv6Address") + "]", a.address("near", "IPAddress"), "[" + a.address("near", "GlobalIPv6Address") + "]"} {
		await(t, "one reaches "+address, func() bool { return a.gets("one", address) == nil })
	}
	if err := a.gets("one", b.address("other", "IPAddress")); err == nil {
		t.Error("a container of another network is reached")
	}
	if other := b.address("other", "GlobalIPv6Address"); other == "" {
		t.Error("a network of IPv6 without a subnet gives no address of IPv6")
	}
	a.refuses("a container can be in one network of calico", "network", "connect", "back", "one")
	r := &caller{Lab: a.Lab, t: t, host: a.host}
	undo := r.onlyPort80()
	await(t, "one does not reach web on a port that policy denies", func() bool { return a.gets("one", "10.66.77.7") != nil })
	undo()
	b.refuses("10.66.77.7", "run", "--network", "front", "--ip", "10.66.77.7", "probe:1")
	a.docker("rm", "-f", "one", "near")
	b.docker("rm", "-f", "web", "other")
	for _, e := range all {
		e.docker("network", "rm", "front", "back")
	}
}

func engineRefuses(_ *testing.T, all []*engine) {
	e := all[0]
	e.refuses("no IPPool has the cidr 10.99.0.0/24", append(dockerCreate, "--subnet", "10.99.0.0/24", "n")...)
	e.refuses("--gateway 10.66.0.1 cannot be honoured", append(dockerCreate, "--subnet", "10.66.0.0/16", "--gateway", "10.66.0.1", "n")...)
	e.refuses("--ip-range", append(dockerCreate, "--subnet", "10.66.0.0/16", "--ip-range", "10.66.1.0/24", "n")...)
	e.refuses("--internal cannot be honoured", append(dockerCreate, "--internal", "n")...)
	e.refuses("--opt parent has no meaning", append(dockerCreate, "--opt", "parent=eth0", "n")...)
	e.refuses("--ipam-driver calico-ipam", "network", "create", "--driver", "calico", "n")
	e.create("n")
	e.refuses("--publish", "run", "--network", "n", "-p", "80:80", "probe:1")
	e.create("My_Net")
	e.refuses("My_Net", "run", "--network", "My_Net", "probe:1")
	e.docker("rm", "-f", e.docker("ps", "-aq", "-l"))
	e.docker("network", "rm", "n", "My_Net")
}

// engineLabels: policy selects a container by its labels, also if they were said while no plugin ran.
func engineLabels(t *testing.T, all []*engine) {
	e := all[0]
	e.create("front")
	e.docker("run", "-d", "--name", "client", "--network", "front", "probe:1")
	e.docker("run", "-d", "--name", "db", "--network", "front", "--label", "org.projectcalico.label.role=db", "--label", "org.projectcalico.label.x=not a value", "--label", "other=x", "probe:1", "serve")
	db := e.address("db", "IPAddress")
	await(t, "the client reaches it", func() bool { return e.gets("client", db) == nil })
	e.does(t, `{apiVersion: projectcalico.org/v3, kind: GlobalNetworkPolicy, metadata: {name: closed}, spec: {selector: role == "db", types: [Ingress]}}`, "apply", "-f", "-")
	await(t, "the container is closed by its label", func() bool { return e.gets("client", db) != nil })
	out := e.does(t, "", "get", "workloadendpoints", "-o", "json")
	if !strings.Contains(out, `"role": "db"`) || strings.Contains(out, `"x":`) || strings.Contains(out, `"other"`) {
		t.Errorf("endpoints: %s", out)
	}
	e.stop()
	e.docker("rename", "client", "still") // dockerd does not wait for the plugin
	e.start()
	if e.gets("still", db) == nil {
		t.Error("with another plugin the label is gone")
	}
	e.does(t, "", "delete", "globalnetworkpolicy", "closed")
	await(t, "the container is open again", func() bool { return e.gets("still", db) == nil })
	e.docker("rm", "-f", "still", "db")
	e.docker("network", "rm", "front")
}

// engineKilled: containers that run do not notice that dockerd and the plugin are killed, and those that dockerd starts again when it starts itself,
// before its API answers, have their network.
func engineKilled(t *testing.T, all []*engine) {
	a, b := all[0], all[1]
	for _, e := range all {
		e.create("--subnet", "10.66.0.0/16", "front")
	}
	a.docker("run", "-d", "--name", "client", "--network", "front", "--restart", "always", "probe:1")
	b.docker("run", "-d", "--name", "web", "--network", "front", "--ip", "10.66.77.8", "probe:1", "serve")
	await(t, "client reaches web", func() bool { return a.gets("client", "10.66.77.8") == nil })
	b.end(syscall.SIGKILL)
	_ = os.Remove(filepath.Join(b.dir, "exec", "containerd", "containerd.pid")) // which dies with it, and which dockerd takes for alive until somebody has reaped it
	must(t, b.plugin.Process.Kill())
	_ = b.plugin.Wait()
	must(t, a.getsWithin("client", "10.66.77.8", time.Minute)) // one connection, on which nothing is refused meanwhile
	b.start()
	b.begin()
	must(t, a.getsWithin("client", "10.66.77.8", time.Minute)) // one connection, on which nothing is refused meanwhile
	a.end(syscall.SIGTERM)
	a.stop()
	a.start()
	a.begin()
	await(t, "client, which is started again, reaches web", func() bool { return a.gets("client", "10.66.77.8") == nil })
	a.docker("rm", "-f", "client")
	b.docker("rm", "-f", "web")
	for _, e := range all {
		e.docker("network", "rm", "front")
	}
}

// engineForgets: what Docker does not know any more goes.
func engineForgets(t *testing.T, all []*engine) {
	e := all[0]
	e.create("--subnet", "10.66.0.0/16", "--aux-address", "router=10.66.77.1", "front")
	e.docker("run", "-d", "--name", "web", "--network", "front", "probe:1", "serve")
	if out := e.does(t, "", "ipam", "show", "--ip", "10.66.77.1"); !strings.Contains(out, "is in use") {
		t.Errorf("an auxiliary address: %s", out)
	}
	was := len(e.left())
	e.docker("kill", "web") // its endpoint goes with it; then one that is as if dockerd had died between two steps
	await(t, "the endpoint is gone", func() bool { return len(e.left()) < was })
	d := e.dockerd
	n := dockerNet{id: d.id(), pools: []string{"CalicoPoolIPv4"}}
	must(t, os.WriteFile(filepath.Join(d.dir, "networks", n.id), []byte("front"), 0o600))
	d.run(n, "")
	if left := strings.Join(d.left(), " "); !strings.Contains(left, "libnetwork-") || !strings.Contains(left, "link cali") {
		t.Errorf("the endpoint was not made: %s", left)
	}
	await(t, "what Docker does not know is gone", func() bool {
		left := strings.Join(d.left(), " ")
		return !strings.Contains(left, "workloadendpoints") && !strings.Contains(left, "link cali")
	})
	if out := e.does(t, "", "ipam", "show", "--ip", "10.66.77.1"); !strings.Contains(out, "is in use") {
		t.Errorf("an auxiliary address was collected: %s", out)
	}
	e.docker("rm", "-f", "web")
	e.docker("network", "rm", "front")
}

var composeTimes = flag.Int("compose", 50, "how many times TestDockerdsContainers takes a compose file up and down")

// engineCompose takes the guide's file up and down, with images of the test's.
func engineCompose(t *testing.T, all []*engine) {
	e := all[0]
	page := string(must2(os.ReadFile("../../docs/docker.md"))(t))
	_, page, _ = strings.Cut(page, "## Compose\n")
	page, _, _ = strings.Cut(page, "\nAfter")
	text := strings.NewReplacer("image: nginx", `image: "probe:1"`+"\n        command: serve", "image: busybox", `image: "probe:1"`, "        command: sleep infinity\n", "").Replace(page)
	file := filepath.Join(e.dir, "compose.yaml")
	must(t, os.WriteFile(file, []byte(text), 0o600))
	compose := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), "docker-compose", append([]string{"-p", "guide", "-f", file}, args...)...)
		cmd.Env = append(os.Environ(), "DOCKER_HOST=unix://"+filepath.Join(e.dir, "docker.sock"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("docker-compose %v: %v\n%s", args, err, out)
		}
	}
	for range *composeTimes {
		compose("up", "-d")
		await(t, "the client gets an answer", func() bool { return e.gets("guide_client_1", "10.66.0.7") == nil })
		compose("down", "-t", "0")
	}
}
