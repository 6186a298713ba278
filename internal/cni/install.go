package cni

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containernetworking/cni/libcni"

	"github.com/twillnet/twill/internal/attach/wire"
)

// Install installs the plugin for container runtimes.
type Install struct {
	Exe     string    // the binary; empty: twill-cni beside this one, or this one
	BinDir  string    // where runtimes look for plugins
	ConfDir string    // and for networks
	Conf    string    // name of the network's file there
	Network []byte    // its content; empty: that of DefaultNetwork
	Upgrade bool      // also replace a binary that is there
	Skip    []string  // names of binaries that are not to be installed
	DryRun  bool      // only say what would be done
	Out     io.Writer // gets a line for each action
}

// Defaults of runtimes.
const (
	DefaultBinDir  = "/opt/cni/bin"
	DefaultConfDir = "/etc/cni/net.d"
	DefaultConf    = "10-twill.conflist"
)

// names of the binary; Calico's, so that its networks work as they are, and one of the CNI project's, for hosts that lack it.
var names = []string{"twill", "twill-ipam", "calico", "calico-ipam", loopbackName}

// others are the plugins that most clusters chain behind ours, where the host has them. Bandwidth is not among them: the agent limits it, and that plugin
// fails where there is a limit already.
var others = []map[string]any{
	{"type": "portmap", "snat": true, "capabilities": map[string]bool{"portMappings": true}},
}

// DefaultNetwork is the network that is written if none is given. A plugin that is chained and absent would have each ADD fail, so
// those that BinDir has not are left out, and named.
func (i Install) DefaultNetwork(mtu int, v4, v6 bool) []byte {
	chain := []any{map[string]any{
		"type": "twill", "socket": wire.DefaultSocket, "mtu": mtu,
		"ipam": map[string]any{"type": "twill-ipam", "assign_ipv4": v4, "assign_ipv6": v6},
	}}
	for _, o := range others {
		if !i.has(o["type"].(string)) {
			i.say("%s is not in %s, and left out of the network: put it there and install again for what it does", o["type"], i.BinDir)
			continue
		}
		chain = append(chain, o)
	}
	text, err := json.MarshalIndent(map[string]any{"name": "twill", "cniVersion": "1.0.0", "plugins": chain}, "", "  ")
	if err != nil {
		panic(err) // it is made of plain values
	}
	return append(text, '\n')
}

// Install writes the binary, then the network: a runtime that sees the network finds the plugin.
func (i Install) Install() error {
	if i.Network == nil {
		i.Network = i.DefaultNetwork(0, true, false)
	}
	if _, err := libcni.NetworkConfFromBytes(i.Network); err != nil {
		if _, single := libcni.NetworkPluginConfFromBytes(i.Network); single != nil {
			return fmt.Errorf("the network cannot be used: %w", err)
		}
	}
	if err := i.checkKeys(); err != nil {
		return err
	}
	program, err := i.program()
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(i.BinDir, name)
		have, err := os.ReadFile(path)
		switch {
		case slices.Contains(i.Skip, name):
			continue
		case err == nil && bytes.Equal(have, program): // its mode may be another
		case err == nil && name == loopbackName && !ours(path):
			continue // the host has one
		case err == nil && !i.Upgrade:
			i.say("kept %s, which is another binary (UPDATE_CNI_BINARIES=false)", path)
			continue
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return err
		}
		if err := i.write(path, program, 0o755); err != nil {
			return err
		}
	}
	if err := i.installOthers(); err != nil {
		return err
	}
	return i.write(filepath.Join(i.ConfDir, i.Conf), i.Network, 0o600)
}

// carriedIn is the directory beside the binary with plugins of the CNI project that come with it, as in the image.
const carriedIn = "cni"

// carried are the plugins that come with the binary, by name. Where there is no such directory there are none.
func (i Install) carried() (map[string][]byte, error) {
	exe := i.Exe
	if exe == "" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, fmt.Errorf("find own binary: %w", err)
		}
	}
	dir := filepath.Join(filepath.Dir(exe), carriedIn)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out := map[string][]byte{}
	for _, e := range entries {
		if pluginNames[e.Name()] || !e.Type().IsRegular() {
			continue
		}
		if out[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name())); err != nil {
			break
		}
	}
	return out, err
}

// has reports whether runtimes will find a plugin.
func (i Install) has(name string) bool {
	if _, err := os.Stat(filepath.Join(i.BinDir, name)); err == nil {
		return true
	}
	carried, err := i.carried()
	return err == nil && carried[name] != nil && !slices.Contains(i.Skip, name)
}

// installOthers installs what comes with the binary, and the host has not. What the host has stays, whatever version it is.
func (i Install) installOthers() error {
	carried, err := i.carried()
	for _, name := range slices.Sorted(maps.Keys(carried)) {
		path := filepath.Join(i.BinDir, name)
		have, missing := os.ReadFile(path)
		others := !errors.Is(missing, fs.ErrNotExist) && !bytes.Equal(have, carried[name])
		if others || slices.Contains(i.Skip, name) {
			continue
		}
		if err := i.write(path, carried[name], 0o755); err != nil {
			return err
		}
	}
	return err
}

// uninstallOthers removes those of them that are still what came with the binary.
func (i Install) uninstallOthers() error {
	carried, err := i.carried()
	for _, name := range slices.Sorted(maps.Keys(carried)) {
		path := filepath.Join(i.BinDir, name)
		if have, missing := os.ReadFile(path); missing != nil || !bytes.Equal(have, carried[name]) {
			continue
		}
		if err := i.remove(path); err != nil {
			return err
		}
	}
	return err
}

// checkKeys reports keys of the network without effect and plugins of it that the host has not, and refuses what ADD would refuse.
func (i Install) checkKeys() error {
	plugins := [][]byte{i.Network}
	if list, err := libcni.NetworkConfFromBytes(i.Network); err == nil {
		plugins = nil
		for _, p := range list.Plugins {
			if pluginNames[p.Network.Type] {
				plugins = append(plugins, p.Bytes)
			} else if !i.has(p.Network.Type) {
				i.say("the network wants the plugin %s, which is not in %s: no container can be attached until it is", p.Network.Type, i.BinDir)
			}
		}
	}
	for _, p := range plugins {
		idles, err := keysWithoutEffect(p)
		if err != nil {
			return fmt.Errorf("the network cannot be used: %w", err)
		}
		if len(idles) > 0 {
			i.say("no effect in the network's configuration: %s", strings.Join(idles, ", "))
		}
	}
	return nil
}

// Uninstall removes the network first, so that no container is begun any more, and then the binaries that are ours.
func (i Install) Uninstall() error {
	conf := filepath.Join(i.ConfDir, i.Conf)
	if text, err := os.ReadFile(conf); err == nil {
		if !ourNetwork(text) {
			return fmt.Errorf("%s is a network of another plugin; nothing is removed", conf)
		}
		if err := i.remove(conf); err != nil {
			return err
		}
	}
	program, err := i.program()
	if err != nil {
		return err
	}
	for _, name := range names {
		path := filepath.Join(i.BinDir, name)
		have, err := os.ReadFile(path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return err
		case !bytes.Equal(have, program) && name == loopbackName:
			continue
		case !bytes.Equal(have, program):
			i.say("kept %s, which is another binary", path)
			continue
		}
		if err := i.remove(path); err != nil {
			return err
		}
	}
	return i.uninstallOthers()
}

// ours reports whether a binary was built of this source, whatever its version.
func ours(path string) bool {
	info, err := buildinfo.ReadFile(path)
	return err == nil && info.Main.Path == module
}

const module = "github.com/twillnet/twill"

// alone is the name of the plugin's own binary, which starts faster than the one with the daemons.
const alone = "twill-cni"

func (i Install) program() ([]byte, error) {
	if i.Exe != "" {
		return os.ReadFile(i.Exe)
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find own binary: %w", err)
	}
	if program, err := os.ReadFile(filepath.Join(filepath.Dir(exe), alone)); err == nil {
		return program, nil
	}
	return os.ReadFile(exe)
}

func ourNetwork(text []byte) bool {
	var conf struct {
		Type    string `json:"type"`
		Plugins []struct {
			Type string `json:"type"`
		} `json:"plugins"`
	}
	if json.Unmarshal(text, &conf) != nil {
		return false
	}
	return pluginNames[conf.Type] || len(conf.Plugins) > 0 && pluginNames[conf.Plugins[0].Type]
}

// isWritten reports whether a file has that content and mode.
func isWritten(path string, content []byte, mode fs.FileMode) bool {
	have, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(have, content) {
		return false
	}
	info, err := os.Stat(path)
	return err == nil && info.Mode().Perm() == mode
}

// write replaces a file atomically, unless it is so already.
func (i Install) write(path string, content []byte, mode fs.FileMode) error {
	if isWritten(path, content, mode) {
		return nil
	}
	i.say("write %s", path)
	if i.DryRun {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	// Runtimes look at all that ends in .conf, .conflist or .json, and at plugins by name.
	fresh := filepath.Join(filepath.Dir(path), "."+strings.ReplaceAll(filepath.Base(path), ".", "-")+".new")
	err := os.WriteFile(fresh, content, mode)
	if err == nil {
		err = os.Chmod(fresh, mode) // the process has an umask, and a file that an install left when it was killed has its own mode
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	return os.Rename(fresh, path)
}

func (i Install) remove(path string) error {
	i.say("remove %s", path)
	if i.DryRun {
		return nil
	}
	return os.Remove(path)
}

func (i Install) say(format string, args ...any) { fmt.Fprintf(i.Out, format+"\n", args...) }
