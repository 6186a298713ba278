// Package netstat reads the counters that the kernel keeps of its own protocols.
//
// In: the network namespace of the calling thread. Out: counters by their names of netstat -s.
package netstat

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// TCP returns the extended counters of TCP (TcpExt), by name.
func TCP() (map[string]uint64, error) {
	text, err := os.ReadFile("/proc/thread-self/net/netstat")
	if err != nil {
		return nil, fmt.Errorf("counters of TCP: %w", err)
	}
	return parse(string(text), "TcpExt:")
}

// parse reads two lines that begin with the same word: names, and numbers in their order.
func parse(text, word string) (map[string]uint64, error) {
	var names []string
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0 || f[0] != word:
		case names == nil:
			names = f[1:]
		case len(names) != len(f)-1:
			return nil, fmt.Errorf("counters of TCP: %d names, %d numbers", len(names), len(f)-1)
		default:
			out := make(map[string]uint64, len(names))
			for i, name := range names {
				n, err := strconv.ParseUint(f[i+1], 10, 64)
				if err != nil {
					continue // a limit of -1
				}
				out[name] = n
			}
			return out, nil
		}
	}
	return nil, fmt.Errorf("counters of TCP: no %s", word)
}
