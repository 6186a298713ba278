package lab

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// engine is a host's dockerd, Debian's, with namespaces of its own for mounts: it finds our plugin alone.
type engine struct {
	*dockerd
	daemon *exec.Cmd
}

// engineScript hides what dockerd would write on this machine outside its directories (/run, /etc/docker, /opt/containerd).
const engineScript = `
mount -t tmpfs tmpfs /run
mkdir -p /run/docker/plugins
mount --bind "$DIR" /run/docker/plugins
mount -t overlay -o lowerdir=/etc,upperdir="$DIR/etc",workdir="$DIR/work" overlay /etc
mount -t tmpfs tmpfs /opt
exec dockerd --data-root "$DIR/data" --exec-root "$DIR/exec" -p "$DIR/dockerd.pid" -H "unix://$DIR/docker.sock" --cgroup-parent "/$CGROUP" \
	--bridge none --iptables=false --ip6tables=false --ip-forward=false --ip-masq=false
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
		e := &engine{dockerd: d}
		for _, sub := range []string{"etc", "work"} {
			must(t, os.Mkdir(filepath.Join(d.dir, sub), 0o755))
		}
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

// begin starts dockerd.
func (e *engine) begin() {
	e.t.Helper()
	log := must2(os.OpenFile(filepath.Join(e.Dir, e.name, "dockerd.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600))(e.t)
	defer log.Close()
	e.daemon = exec.Command("unshare", "--mount", "--propagation", "private", "sh", "-euc", engineScript)
	e.daemon.Env = append(os.Environ(), "DIR="+e.dir, "CGROUP="+e.cgroup())
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
		log, _ := os.ReadFile(filepath.Join(e.Dir, e.name, "dockerd.log"))
		plugin, _ := os.ReadFile(filepath.Join(e.Dir, e.name, "docker-plugin.log"))
		e.t.Logf("%s: dockerd\n%s\nplugin\n%s", e.name, log[max(0, len(log)-3000):], plugin[max(0, len(plugin)-3000):])
	}
	if ids, err := e.command("ps", "-aq").Output(); err == nil && len(ids) > 0 { // one that ignores SIGTERM holds dockerd's end up
		_ = e.command(append([]string{"rm", "-f"}, strings.Fields(string(ids))...)...).Run()
	}
	e.end(syscall.SIGTERM)
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + e.cgroup())
	for _, dir := range append(groups, "/sys/fs/cgroup/"+e.cgroup()) {
		_ = os.Remove(dir) // empty ones alone go
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
	out, err := e.command("exec", from, "/probe", "get", fmt.Sprintf("http://%s:8080", address)).CombinedOutput()
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
		"two hosts": engineTwoHosts,
		"refused":   engineRefuses,
	} {
		t.Run(name, func(t *testing.T) {
			var ours []*engine
			for _, e := range engines {
				d := *e.dockerd
				d.t = t
				ours = append(ours, &engine{dockerd: &d, daemon: e.daemon})
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
		e.create("back")
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
		must(t, a.gets("one", address))
	}
	if err := a.gets("one", b.address("other", "IPAddress")); err == nil {
		t.Error("a container of another network is reached")
	}
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
