package cni

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/containernetworking/cni/libcni"
)

// Network is a file in which a container runtime finds a network.
type Network struct {
	File, Name string
	Types      []string // of its plugins, in the order in which they are called; with no Err there is one at least
	IPAM       string   // of the first; empty: none
	Idle       []string // keys of Calico's plugin, or of Twill's, on which Twill's does not act
	Err        error    // it is no network
}

// Networks are those of a directory, in the order of their names, in which runtimes take them: most only the first. A directory that is
// not there has none.
func Networks(dir string) (out []Network, err error) {
	files, err := libcni.ConfFiles(dir, []string{".conf", ".conflist", ".json"})
	if err != nil {
		return nil, err
	}
	slices.Sort(files)
	for _, file := range files {
		n := Network{File: file}
		n.Err = n.read()
		out = append(out, n)
	}
	return out, nil
}

// read reads a list of plugins, or a single one.
func (n *Network) read() error {
	text, err := os.ReadFile(n.File)
	if err != nil {
		return err
	}
	var chain []*libcni.PluginConfig
	if filepath.Ext(n.File) == ".conflist" {
		list, err := libcni.NetworkConfFromBytes(text)
		if err != nil {
			return err
		}
		n.Name, chain = list.Name, list.Plugins
	} else {
		single, err := libcni.NetworkPluginConfFromBytes(text)
		if err != nil {
			return err
		}
		n.Name, chain = single.Network.Name, append(chain, single)
	}
	for i, p := range chain {
		n.Types = append(n.Types, p.Network.Type)
		if i == 0 {
			n.IPAM = p.Network.IPAM.Type
		}
		if !pluginNames[p.Network.Type] {
			continue
		}
		idle, err := keysWithoutEffect(p.Bytes)
		if err != nil {
			return fmt.Errorf("refused by Twill's plugin: %w", err)
		}
		n.Idle = append(n.Idle, idle...)
	}
	if len(n.Types) == 0 || n.Types[0] == "" {
		return errors.New("it names no plugin")
	}
	return nil
}

// Ours reports whether there is a binary at a path, and whether it was built of this source.
func Ours(path string) (there, our bool) {
	_, err := os.Stat(path)
	return err == nil, err == nil && ours(path)
}
