package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// kept is what daemons keep in the data directory (docs/design/ownership.md).
var kept = []string{"nodename", "bgp-plan.json", "bgp-plan.json.new", "cni", "etcd"}

// dataDirs are the directories in which the node keeps its data: the usual one, those that the caller names, and those that its unit or
// what an administrator added to that names.
func (i Install) dataDirs() []string {
	dirs := append([]string{stateDir}, i.Data...)
	more, _ := filepath.Glob(i.Root + units + nodeUnit + ".d/*.conf") // the pattern is good
	for _, file := range append([]string{i.Root + packageUnits + nodeUnit, i.Root + units + nodeUnit}, more...) {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it is not there
		}
		for line := range strings.Lines(string(text)) {
			if command, ok := strings.CutPrefix(strings.TrimSpace(line), "ExecStart="); ok {
				dirs = append(dirs, dataDirOf(command)...)
			}
		}
	}
	for n, d := range dirs {
		dirs[n] = filepath.Clean(d)
	}
	slices.Sort(dirs)
	return slices.DeleteFunc(slices.Compact(dirs), func(d string) bool { return !filepath.IsAbs(d) })
}

// dataDirOf finds --data-dir in a command of a unit.
func dataDirOf(command string) (dirs []string) {
	words := strings.Fields(command)
	for n, w := range words {
		dir, given := strings.CutPrefix(w, "--data-dir=")
		if w == "--data-dir" && n+1 < len(words) {
			dir, given = words[n+1], true
		}
		if given {
			dirs = append(dirs, strings.Trim(dir, `"'`))
		}
	}
	return dirs
}

// ours reports whether daemons of ours made something of a data directory. Below one that has no name of ours, as /var/lib, a
// datastore may be another's: ours has its data in member-data.
func (i Install) ours(dir, name string) bool {
	if _, err := os.Lstat(filepath.Join(i.Root+dir, name)); err != nil {
		return false
	}
	if dir == stateDir {
		return true
	}
	mark := "nodename"
	if name == "etcd" {
		mark = "etcd/member-data"
	}
	_, err := os.Stat(filepath.Join(i.Root+dir, mark))
	return err == nil && name != "cni" // which is in the usual one alone
}

// data says what becomes of the data directories: with purge, what is ours in them goes, and they too if nothing else is there.
func (i Install) data(dirs []string, purge bool) error {
	for _, dir := range dirs {
		for _, name := range slices.Backward(kept) { // the name of the node last, since it is what shows that the rest is ours
			if !i.ours(dir, name) {
				continue
			}
			path := filepath.Join(i.Root+dir, name)
			if !purge {
				if name == "etcd" {
					i.say("%s stays: it is the datastore. --purge removes it too", path)
				}
				continue
			}
			i.say("remove %s", path)
			if i.DryRun {
				continue
			}
			if err := os.RemoveAll(path); err != nil {
				return err
			}
		}
		if purge && !i.DryRun {
			i.leaveDir(dir)
		}
	}
	return nil
}

// leaveDir removes a data directory in which nothing is left, and else says what is.
func (i Install) leaveDir(dir string) {
	left, err := os.ReadDir(i.Root + dir)
	if err != nil {
		return // it was never made
	}
	if len(left) > 0 {
		i.say("%s stays: there is %s in it, which is not ours", i.Root+dir, left[0].Name())
	} else if os.Remove(i.Root+dir) == nil {
		i.say("remove %s", i.Root+dir)
	}
}
