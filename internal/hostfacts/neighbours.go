package hostfacts

import (
	"os"
	"strconv"
	"strings"

	"github.com/twillnet/twill/internal/doctor"
)

// neighbours is how full the kernel's tables of neighbours are. Only in the machine's first network namespace it says so.
func (h *Host) neighbours() (out []doctor.Neighbours) {
	_ = h.ns.Do(func() error {
		for _, of := range []struct{ family, file string }{{"ipv4", "arp_cache"}, {"ipv6", "ndisc_cache"}} {
			stat, err1 := os.ReadFile("/proc/thread-self/net/stat/" + of.file)
			limit, err2 := os.ReadFile("/proc/sys/net/" + of.family + "/neigh/default/gc_thresh3")
			if n, ok := readNeighbours(string(stat), string(limit)); ok && err1 == nil && err2 == nil {
				n.Family = of.family
				out = append(out, n)
			}
		}
		return nil
	})
	return out
}

// readNeighbours reads a file of /proc/net/stat: names of columns, and a line of hexadecimal numbers for each processor. How many entries there are is the same in each
// of them, and what happened is to be added up.
func readNeighbours(stat, limit string) (n doctor.Neighbours, ok bool) {
	var err error
	if n.Max, err = strconv.Atoi(strings.TrimSpace(limit)); err != nil {
		return n, false
	}
	lines := strings.Split(strings.TrimSpace(stat), "\n")
	names := strings.Fields(lines[0])
	for _, line := range lines[1:] {
		for i, value := range strings.Fields(line) {
			if i == len(names) {
				return n, false
			}
			v, err := strconv.ParseUint(value, 16, 32)
			if err != nil {
				return n, false
			}
			switch names[i] {
			case "entries":
				n.Count, ok = int(v), true
			case "table_fulls":
				n.Full += int(v)
			}
		}
	}
	return n, ok
}
