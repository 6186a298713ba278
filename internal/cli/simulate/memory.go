package simulate

import (
	"bufio"
	"bytes"
	"os"
	"strconv"
	"strings"
)

// available is how much memory this process may still take, in bytes: what the machine has, or the limit of its control group if that
// is lower. Zero: nobody knows. See proc_meminfo(5), and memory.max in the kernel's cgroup-v2.
func available(root string) uint64 {
	var machine uint64
	if text, err := os.ReadFile(root + "/proc/meminfo"); err == nil { //nolint:gosec // the kernel's
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			if f := strings.Fields(lines.Text()); len(f) > 1 && f[0] == "MemAvailable:" {
				machine = parse(f[1]) << 10
			}
		}
	}
	limit, used := read(root+"/sys/fs/cgroup/memory.max"), read(root+"/sys/fs/cgroup/memory.current")
	if limit > used && (machine == 0 || limit-used < machine) {
		return limit - used
	}
	return machine
}

// read is the number in a file; zero: there is none.
func read(path string) uint64 {
	text, err := os.ReadFile(path) //nolint:gosec // the kernel's
	if err != nil {
		return 0
	}
	return parse(strings.TrimSpace(string(text)))
}

func parse(text string) uint64 {
	n, _ := strconv.ParseUint(text, 10, 64) // max is no number, and no limit
	return n
}
