package hostfacts

import (
	"bufio"
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/doctor"
)

// networkd is the name that the kernel has of systemd-networkd, which is longer than names of processes can be.
const networkd = "systemd-network"

// Networkd is what a systemd-networkd among processes does to what others program, by the files that it reads itself; nil: none runs.
func Networkd(processes []doctor.Process) *doctor.Networkd {
	for _, p := range processes {
		if p.Name == networkd {
			return networkdBy(fmt.Sprintf("/proc/%d/root", p.PID))
		}
	}
	return nil
}

// networkdBy reads networkd.conf below a root: the first that there is, and then what is in directories of additions, by their names, of which the first
// counts that has a name (systemd.syntax(7), networkd.conf(5)).
func networkdBy(root string) *doctor.Networkd {
	is := &doctor.Networkd{RemovesRoutes: true, RemovesRules: true}
	main, more := "", map[string]string{}
	for _, dir := range []string{"etc", "run", "usr/local/lib", "usr/lib"} {
		at := filepath.Join(root, dir, "systemd/networkd.conf")
		if _, err := os.Stat(at); err == nil && main == "" {
			main = at
		}
		files, _ := filepath.Glob(at + ".d/*.conf")
		for _, file := range files {
			if name := filepath.Base(file); more[name] == "" {
				more[name] = file
			}
		}
	}
	files := []string{main}
	for _, name := range slices.Sorted(maps.Keys(more)) {
		files = append(files, more[name])
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // what is not there says nothing
		readNetworkd(text, is)
	}
	return is
}

// readNetworkd takes over what a file says.
func readNetworkd(text []byte, is *doctor.Networkd) {
	section := ""
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		line := strings.TrimSpace(lines.Text())
		if strings.HasPrefix(line, "[") {
			section = line
		}
		key, value, _ := strings.Cut(line, "=")
		set := map[string]*bool{"ManageForeignRoutes": &is.RemovesRoutes, "ManageForeignRoutingPolicyRules": &is.RemovesRules}[strings.TrimSpace(key)]
		if section != "[Network]" || set == nil {
			continue
		}
		switch strings.ToLower(strings.TrimSpace(value)) {
		case "1", "yes", "y", "true", "t", "on":
			*set = true
		case "0", "no", "n", "false", "f", "off":
			*set = false
		}
	}
}
