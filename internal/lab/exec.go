package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/terminal"
)

// Exec runs a command in a host or workload of the lab and returns its exit
// code. Its datastore is the lab's.
func (l *Lab) Exec(name string, argv []string, in io.Reader, out, errOut io.Writer) (int, error) {
	target, err := l.Spec.find(name)
	if err != nil {
		return 1, err
	}
	ns, err := netns.Open(target.ns)
	if err != nil {
		return 1, err
	}
	defer ns.Close()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, errOut
	cmd.Env = append(os.Environ(), "ETCD_ENDPOINTS="+l.Socket(), "PS1="+name+"# ", "NODENAME="+name, "TWILL_SOCKET="+l.AgentSocket(name))
	if err := ns.Start(cmd); err != nil {
		return 1, err
	}
	err = cmd.Wait()
	var exited *exec.ExitError
	if errors.As(err, &exited) {
		return exited.ExitCode(), nil
	}
	return 0, err
}

// Reach tries one real TCP connection. The destination may be any workload of the lab.
func (l *Lab) Reach(src, dst string, port uint16, v6 bool) (bool, error) {
	from, err := l.Spec.find(src)
	if err != nil {
		return false, err
	}
	to, err := l.Spec.find(dst)
	if err != nil {
		return false, err
	}
	at := netip.AddrPortFrom(to.addr(v6), port)
	ls := &listeners{}
	if err := ls.open(to.ns, at); err != nil {
		return false, err
	}
	defer ls.Close()
	return tryTCP(from.ns, from.addr(v6), at, 2*time.Second)
}

func pick(v6 bool, four, six netip.Addr) netip.Addr {
	if v6 {
		return six
	}
	return four
}

// PrintStatus shows what the lab has, and whether its nodes run. It returns
// the number of hosts whose node is down.
func (l *Lab) PrintStatus(w io.Writer) int {
	down := 0
	t := terminal.NewTable(w)
	fmt.Fprintf(w, "datastore  %s\nlogs       %s/HOST/node.log\n\n", l.Socket(), l.Dir)
	for _, h := range l.Spec.Hosts {
		state := "twill node runs, pid " + strconv.Itoa(h.PID)
		if !l.runs(h.Name, h.PID) {
			state = "twill node is DOWN"
			down++
		}
		t.Row(h.Name, h.V4.String(), h.V6.String(), state)
		for _, x := range l.Spec.Workloads {
			if x.Host == h.Name {
				var labels []string
				for k, v := range x.Labels {
					labels = append(labels, k+"="+v)
				}
				slices.Sort(labels)
				t.Row("  "+x.String(), x.V4.String(), x.V6.String(), fmt.Sprintf("tcp/%d", x.Port), x.link(), strings.Join(labels, ","))
			}
		}
	}
	_ = t.Flush() // as above
	return down
}
