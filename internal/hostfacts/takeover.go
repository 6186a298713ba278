package hostfacts

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/doctor/takeover"
)

// Takeover fills in what only a take-over asks for: the environment of upstream's agent, which [Host.Read] has found, its file of
// settings, and what is pinned below bpf, the kernel's file system for that (/sys/fs/bpf).
func Takeover(t *takeover.Facts, file, bpf string) {
	for _, p := range t.Processes {
		if !slices.Contains(doctor.UpstreamAgents(), p.Name) {
			continue
		}
		a := takeover.Agent{Name: p.Name, PID: p.PID}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.PID))
		if err != nil {
			a.EnvironErr = err.Error()
		}
		for _, e := range strings.Split(string(text), "\x00") {
			if e != "" {
				a.Environ = append(a.Environ, e)
			}
		}
		t.Agents = append(t.Agents, a)
	}
	t.File.Path = file
	switch text, err := os.ReadFile(file); {
	case err == nil:
		t.File.Text = string(text)
	case !errors.Is(err, fs.ErrNotExist):
		t.File.Err = err.Error()
	}
	pins, err := pinned(bpf)
	if t.Pins = pins; err != nil {
		t.BPFErr = err.Error()
	}
}

// pinned are the files of upstream's in the file system of BPF: those in a directory calico, and those whose names begin with cali.
func pinned(root string) (out []string, err error) {
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it went meanwhile, or there is no such file system
		case err != nil:
			return err
		case !e.IsDir() && (strings.HasPrefix(e.Name(), "cali") || strings.Contains(path, "/calico/")):
			out = append(out, path)
		}
		return nil
	})
	return out, err
}
