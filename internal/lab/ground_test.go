package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

const (
	patience = 400 * time.Millisecond // for one connection: all is on this machine, and what is open is tried again
	hostPort = 8080                   // of the service of host h1
	beatPort = 9000                   // first of the two ports between which the beat changes
)

// ground is a lab of one host whose workloads in two namespaces all reach each
// other, until a case changes something.
type ground struct {
	*Lab
	store datastore.Store
	beats int
}

// groundSpec has a, b in demo, c, d in other; m1 and m2 are for the beat alone.
func groundSpec() Spec {
	s := Spec{Hosts: Demo().Hosts[:1]}
	for i, name := range []string{"demo/a", "demo/b", "other/c", "other/d", "mark/m1", "mark/m2"} {
		ns, name, _ := strings.Cut(name, "/")
		s.Workloads = append(s.Workloads, Workload{
			Namespace: ns, Name: name, Host: "h1", Port: 80, Labels: map[string]string{"app": name},
			V4: netip.MustParseAddr(fmt.Sprintf("10.65.1.%d", i+2)), V6: netip.MustParseAddr(fmt.Sprintf("fd65:0:0:1::%d", i+2)),
		})
	}
	var b strings.Builder
	for _, ns := range []string{"demo", "other", "mark"} {
		fmt.Fprintf(&b, "---\napiVersion: projectcalico.org/v3\nkind: Profile\nmetadata: {name: kns.%s}\n"+
			"spec: {ingress: [{action: Allow}], egress: [{action: Allow}], labelsToApply: {pcns.projectcalico.org/name: %s, pcns.team: %s}}\n", ns, ns, ns)
	}
	// Before all others, so that what a case denies does not stop the beat.
	b.WriteString("---\napiVersion: projectcalico.org/v3\nkind: Tier\nmetadata: {name: beat}\nspec: {order: 1}\n")
	s.Manifests = []byte(b.String())
	return s
}

func newGround(t *testing.T) *ground {
	t.Helper()
	g := &ground{Lab: testLab(t, groundSpec())}
	store, err := g.Lab.store(t.Context())
	must(t, err)
	t.Cleanup(func() { _ = store.Close() })
	g.store = store
	ls, err := listen(&g.Spec)
	must(t, err)
	t.Cleanup(ls.Close)
	h, m2 := g.Spec.Hosts[0], g.Spec.Workloads[5]
	must(t, ls.open(g.Spec.hostNS(h), netip.AddrPortFrom(netip.IPv6Unspecified(), hostPort)))
	for i := range uint16(2) {
		must(t, ls.open(g.Spec.workloadNS(m2), netip.AddrPortFrom(m2.V4, beatPort+i)))
	}
	g.firstBeat(t)
	g.open(t)
	return g
}

// firstBeat brings the policy that beats change into force. Without it both ports are open, so that no beat could be seen.
func (g *ground) firstBeat(t *testing.T) {
	t.Helper()
	g.beat(t)
	m1, m2 := g.Spec.Workloads[4], g.Spec.Workloads[5]
	shut := netip.AddrPortFrom(m2.V4, beatPort+uint16((g.beats+1)%2))
	silent := 0 // times in a row: once may be the machine's
	await(t, "the first beat's other port is closed", func() bool {
		silent++
		if dial(t, g.Spec.workloadNS(m1), shut, patience) {
			silent = 0
		}
		return silent == 2
	})
}

// criterion runs one case. What it put into the store is taken back, and all is open again, before the next.
func (g *ground) criterion(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Cleanup(func() { g.open(t) })
		test(t)
	})
}

// open awaits that nothing denies.
func (g *ground) open(t *testing.T) {
	t.Helper()
	g.want(t, "a -> b yes", "b -> a yes", "a -> c yes", "c -> a yes", "c -> d yes", "d -> b yes", "h1 -> a yes")
}

// key is where a resource is stored.
func key(kind, namespace, name string) string {
	if namespace != "" {
		name = namespace + "/" + name
	}
	return api.KeyPrefix(kind, "") + name
}

// put writes a resource past the command line, which would refuse what is wrong in it.
func (g *ground) put(t *testing.T, kind, namespace, name, spec string) string {
	t.Helper()
	in := ""
	if namespace != "" {
		in = fmt.Sprintf(`,"namespace":%q`, namespace)
	}
	return g.putRaw(t, key(kind, namespace, name), fmt.Sprintf(
		`{"kind":%q,"apiVersion":"projectcalico.org/v3","metadata":{"name":%q%s},"spec":%s}`, kind, name, in, spec))
}

// putRaw writes a value, and puts back what was there when the case ends.
func (g *ground) putRaw(t *testing.T, key, value string) string {
	t.Helper()
	was, err := g.store.Get(t.Context(), key)
	if errors.Is(err, datastore.ErrNotFound) {
		_, err = g.store.Create(t.Context(), api.Update{Key: key, Value: []byte(value)})
		t.Cleanup(func() {
			if err := g.store.Delete(context.Background(), key, api.Revision{}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
				t.Error(err)
			}
		})
	} else if err == nil {
		_, err = g.store.Update(t.Context(), api.Update{Key: key, Value: []byte(value)})
		t.Cleanup(func() {
			if _, err := g.store.Update(context.Background(), api.Update{Key: key, Value: was.Value}); err != nil && !errors.Is(err, datastore.ErrNotFound) {
				t.Error(err)
			}
		})
	}
	must(t, err)
	return key
}

func (g *ground) value(t *testing.T, key string) string {
	t.Helper()
	u, err := g.store.Get(t.Context(), key)
	must(t, err)
	return string(u.Value)
}

// beat returns when all that was written before is in force: updates keep
// their order, and this one, of a policy with no other purpose, is.
func (g *ground) beat(t *testing.T) {
	t.Helper()
	g.beats++
	port := beatPort + uint16(g.beats%2)
	ctx := context.Background() // also of use in cleanups, when the test's own has ended
	u := api.Update{Key: key(api.KindNetworkPolicy, "mark", "beat.beat"), Value: fmt.Appendf(nil,
		`{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"beat.beat","namespace":"mark"},"spec":{"tier":"beat","selector":"all()",`+
			`"types":["Ingress","Egress"],"egress":[{"action":"Allow"}],"ingress":[{"action":"Allow","protocol":"TCP","destination":{"ports":[%d]}}]}}`, port)}
	_, err := g.store.Update(ctx, u)
	if errors.Is(err, datastore.ErrNotFound) {
		_, err = g.store.Create(ctx, u)
	}
	must(t, err)
	m1, m2 := g.Spec.Workloads[4], g.Spec.Workloads[5]
	await(t, "the last change is in force", func() bool {
		return dial(t, g.Spec.workloadNS(m1), netip.AddrPortFrom(m2.V4, port), patience/8)
	})
}

// dial reports whether a TCP connection is made: the kernel of the other end
// does that, however busy the listening process is, and ours knows when the time
// is over, however late this process comes to ask it.
func dial(t *testing.T, ns string, to netip.AddrPort, wait time.Duration) bool {
	t.Helper()
	made := false
	if err := inside(ns, func() error {
		family, at, err := socketAddr(to)
		if err != nil {
			return err
		}
		fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		err = unix.Connect(fd, at)
		for deadline := time.Now().Add(wait); errors.Is(err, unix.EINPROGRESS) || errors.Is(err, unix.EINTR); {
			polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
			n := 0
			if n, err = unix.Poll(polled, int(max(0, time.Until(deadline).Milliseconds()))); err == nil && n == 1 {
				var code int
				code, err = unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
				err = errors.Join(err, errno(code))
			} else if err == nil {
				err = unix.ETIMEDOUT
			}
		}
		made = err == nil
		return nil // refused, unreachable and silence alike: it did not get through
	}); err != nil {
		t.Error(err)
	}
	return made
}

// errno is the error of a number, nil for none.
func errno(code int) error {
	if code == 0 {
		return nil
	}
	return syscall.Errno(code)
}

// socketAddr is an address as the kernel has it. A zone is the name of a link of the thread's namespace.
func socketAddr(a netip.AddrPort) (family int, at unix.Sockaddr, err error) {
	if a.Addr().Is4() {
		return unix.AF_INET, &unix.SockaddrInet4{Port: int(a.Port()), Addr: a.Addr().As4()}, nil
	}
	six := &unix.SockaddrInet6{Port: int(a.Port()), Addr: a.Addr().As16()}
	if zone := a.Addr().Zone(); zone != "" {
		link, err := net.InterfaceByName(zone)
		if err != nil {
			return 0, nil, err
		}
		six.ZoneId = uint32(link.Index)
	}
	return unix.AF_INET6, six, nil
}

// want checks lines such as "a -> b yes" or "a -> h1:8080 no" over both
// families. What is to be open has time to become so; what is to be closed
// must be closed now, for all that was written is in force.
func (g *ground) want(t *testing.T, lines ...string) {
	t.Helper()
	g.beat(t)
	g.still(t, lines...)
}

// still is want where nothing new comes into force.
func (g *ground) still(t *testing.T, lines ...string) {
	t.Helper()
	var wg sync.WaitGroup
	wrong := make(chan string, 2*len(lines))
	for _, line := range lines {
		f := strings.Fields(line)
		if len(f) != 4 {
			t.Fatalf("%q: want SRC -> DST yes|no", line)
		}
		from, err := g.Spec.find(f[0])
		must(t, err)
		for _, v6 := range []bool{false, true} {
			to := g.address(t, f[2], v6)
			wg.Go(func() {
				open := f[3] == "yes"
				made := dial(t, from.ns, to, patience)
				for deadline := time.Now().Add(scenarioPatience); open && !made && time.Now().Before(deadline); {
					made = dial(t, from.ns, to, patience)
				}
				if made != open {
					wrong <- fmt.Sprintf("%s over %s: connected %v", line, to, made)
				}
			})
		}
	}
	wg.Wait()
	close(wrong)
	for w := range wrong {
		t.Error(w)
	}
}

// address of "NAME" or "NAME:PORT".
func (g *ground) address(t *testing.T, name string, v6 bool) netip.AddrPort {
	t.Helper()
	port := uint64(80)
	if n, text, ok := strings.Cut(name, ":"); ok {
		name = n
		var err error
		port, err = strconv.ParseUint(text, 10, 16)
		must(t, err)
	}
	if h, ok := g.Spec.host(name); ok {
		return netip.AddrPortFrom(pick(v6, h.V4, h.V6), uint16(port))
	}
	for _, w := range g.Spec.Workloads {
		if w.Name == name {
			return netip.AddrPortFrom(w.addr(v6), uint16(port))
		}
	}
	t.Fatalf("no %q here", name)
	return netip.AddrPort{}
}

// twill runs the command line on the lab's store, and returns what it printed
// and its exit code.
func (l *Lab) twill(t *testing.T, stdin string, args ...string) (string, int) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), l.Exe, append([]string{"--etcd", l.Socket()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exited *exec.ExitError
	if err != nil && !errors.As(err, &exited) {
		t.Fatalf("twill %v: %v", args, err)
	}
	return out.String(), cmd.ProcessState.ExitCode()
}

// does is twill that must succeed.
func (l *Lab) does(t *testing.T, stdin string, args ...string) string {
	t.Helper()
	out, code := l.twill(t, stdin, args...)
	if code != 0 {
		t.Fatalf("twill %v: exit code %d\n%s", args, code, out)
	}
	return out
}
