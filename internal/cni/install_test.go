package cni

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/containernetworking/cni/libcni"
)

func installIn(t *testing.T, binary string) (Install, *bytes.Buffer) {
	t.Helper()
	dir, out := t.TempDir(), &bytes.Buffer{}
	exe := filepath.Join(dir, "built")
	if err := os.WriteFile(exe, []byte(binary), 0o700); err != nil {
		t.Fatal(err)
	}
	return Install{Exe: exe, BinDir: filepath.Join(dir, "bin"), ConfDir: filepath.Join(dir, "net.d"), Conf: DefaultConf, Upgrade: true, Out: out}, out
}

func files(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func TestInstallAndUninstall(t *testing.T) {
	in, out := installIn(t, "v1")
	for range 2 {
		if err := in.Install(); err != nil {
			t.Fatal(err)
		}
	}
	if lines := strings.Count(out.String(), "write "); lines != 6 {
		t.Errorf("the second time something was written again:\n%s", out)
	}
	if got := files(t, in.BinDir); !slices.Equal(got, []string{"calico", "calico-ipam", "loopback", "twill", "twill-ipam"}) {
		t.Errorf("binaries: %v", got)
	}
	list, err := libcni.NetworkConfFromFile(filepath.Join(in.ConfDir, DefaultConf))
	if err != nil || list.Plugins[0].Network.Type != "twill" || list.Plugins[0].Network.IPAM.Type != "twill-ipam" {
		t.Errorf("a runtime reads of the network: %v, %v", list, err)
	}
	if got := chainOf(t, in.DefaultNetwork(0, true, false)); !slices.Equal(got, []string{"twill"}) || !strings.Contains(out.String(), "portmap is not in "+in.BinDir) {
		t.Errorf("on a host without other plugins the network is a chain of %q\n%s", got, out)
	}
	other := filepath.Join(in.BinDir, "calico")
	if err := os.WriteFile(other, []byte("upstream's"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := in.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if got := append(files(t, in.BinDir), files(t, in.ConfDir)...); !slices.Equal(got, []string{"calico"}) {
		t.Errorf("left: %v, want only what is not ours", got)
	}
}

// TestModesAreOurs: a file of equal content that nobody can execute, or everybody write, is no plugin of ours; nor does what a killed install left
// say the mode.
func TestModesAreOurs(t *testing.T) {
	in, _ := installIn(t, "v1")
	carried := filepath.Join(filepath.Dir(in.Exe), carriedIn)
	wrong := map[string]string{
		filepath.Join(in.BinDir, "twill"): "v1", filepath.Join(in.BinDir, ".calico.new"): "v", filepath.Join(in.BinDir, "portmap"): "portmap of ours",
		filepath.Join(in.ConfDir, DefaultConf): string(in.DefaultNetwork(0, true, false)),
	}
	if err := errors.Join(os.MkdirAll(carried, 0o700), os.WriteFile(filepath.Join(carried, "portmap"), []byte("portmap of ours"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for path, text := range wrong {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600), os.Chmod(path, 0o666)); err != nil {
			t.Fatal(err)
		}
	}
	in.Upgrade = false
	if err := in.Install(); err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{in.BinDir: 0o755, in.ConfDir: 0o600}
	for dir, mode := range want {
		for _, name := range files(t, dir) {
			info, err := os.Stat(filepath.Join(dir, name))
			if err != nil || info.Mode().Perm() != mode {
				t.Errorf("%s has the mode %o, want %o: %v", name, info.Mode(), mode, err)
			}
		}
	}
}

// TestPluginsThatComeWithTheBinary are installed where the host has none of that name, and go with what is ours.
func TestPluginsThatComeWithTheBinary(t *testing.T) {
	in, out := installIn(t, "v1")
	carried := filepath.Join(filepath.Dir(in.Exe), carriedIn)
	for path, text := range map[string]string{
		filepath.Join(carried, "portmap"): "portmap of ours", filepath.Join(carried, "tuning"): "tuning of ours", filepath.Join(carried, "calico"): "no plugin of others",
		filepath.Join(in.BinDir, "tuning"): "the host's",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o700)); err != nil {
			t.Fatal(err)
		}
	}
	if got := chainOf(t, in.DefaultNetwork(0, true, false)); !slices.Equal(got, []string{"twill", "portmap"}) {
		t.Errorf("the network is a chain of %q", got)
	}
	for range 2 {
		if err := in.Install(); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"portmap": "portmap of ours", "tuning": "the host's", "calico": "v1"} {
		if got, err := os.ReadFile(filepath.Join(in.BinDir, name)); err != nil || string(got) != want {
			t.Errorf("%s is %q, %v; want %q", name, got, err, want)
		}
	}
	if strings.Contains(out.String(), "which is not in") || strings.Count(out.String(), "write "+filepath.Join(in.BinDir, "portmap")) != 1 {
		t.Errorf("it said\n%s", out)
	}
	if err := in.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, in.BinDir); !slices.Equal(got, []string{"tuning"}) {
		t.Errorf("left: %v, want only the host's", got)
	}
	in.Skip = []string{"portmap"}
	if got := chainOf(t, in.DefaultNetwork(0, true, false)); !slices.Equal(got, []string{"twill"}) {
		t.Errorf("without portmap, the network is a chain of %q", got)
	}
}

func chainOf(t *testing.T, network []byte) (chain []string) {
	t.Helper()
	list, err := libcni.NetworkConfFromBytes(network)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list.Plugins {
		chain = append(chain, p.Network.Type)
	}
	return chain
}

// TestOnlyPluginsOfTheHostAreChained: one that is not there would have each ADD fail.
func TestOnlyPluginsOfTheHostAreChained(t *testing.T) {
	in, out := installIn(t, "v1")
	if err := os.MkdirAll(in.BinDir, 0o755); err != nil {
		t.Fatal(err)
	}
	for n, name := range []string{"bandwidth", "portmap"} {
		if err := os.WriteFile(filepath.Join(in.BinDir, name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
		want := [][]string{{"twill"}, {"twill", "portmap"}}[n]
		if got := chainOf(t, in.DefaultNetwork(0, true, false)); !slices.Equal(got, want) {
			t.Errorf("with %s too the network is a chain of %q, want %q", name, got, want)
		}
	}
	in.Network = []byte(`{"name": "n", "cniVersion": "1.0.0", "plugins": [{"type": "twill", "ipam": {"type": "twill-ipam"}}, {"type": "tuning"}]}`)
	if err := in.Install(); err != nil || !strings.Contains(out.String(), "wants the plugin tuning, which is not in "+in.BinDir) {
		t.Errorf("a network that is given: %v\n%s", err, out)
	}
}

// TestAHostKeepsItsLoopback: ours is for hosts that have none, and for no other; one that an older version brought is replaced.
func TestAHostKeepsItsLoopback(t *testing.T) {
	in, _ := installIn(t, "v2")
	if err := os.MkdirAll(in.BinDir, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(in.BinDir, "loopback")
	self, err := os.Executable() // built of this source
	if err != nil {
		t.Fatal(err)
	}
	older, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	for want, have := range map[string][]byte{"the CNI project's": []byte("the CNI project's"), "v2": older} {
		if err := os.WriteFile(file, have, 0o700); err != nil {
			t.Fatal(err)
		}
		if err := in.Install(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("the loopback is %.20q (%v), want %q", got, err, want)
		}
	}
	if err := os.WriteFile(file, []byte("the CNI project's"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := in.Uninstall(); err != nil {
		t.Fatal(err)
	}
	if got := files(t, in.BinDir); !slices.Equal(got, []string{"loopback"}) {
		t.Errorf("uninstalled, there is %v", got)
	}
}

func TestInstallKeepsWhatFlagsAskToKeep(t *testing.T) {
	in, out := installIn(t, "v2")
	in.Upgrade, in.Skip = false, []string{"calico-ipam"}
	if err := os.MkdirAll(in.BinDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(in.BinDir, "twill"), []byte("v1"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := in.Install(); err != nil {
		t.Fatal(err)
	}
	have, _ := os.ReadFile(filepath.Join(in.BinDir, "twill"))
	if got := files(t, in.BinDir); string(have) != "v1" || slices.Contains(got, "calico-ipam") || !slices.Contains(got, "calico") {
		t.Errorf("binaries: %v, twill is %s\n%s", got, have, out)
	}
	in.Network = []byte(`{"cniVersion": "1.0.0", "plugins": 1}`)
	if err := in.Install(); err == nil || !strings.Contains(err.Error(), "the network cannot be used") {
		t.Errorf("a network that no runtime reads: %v", err)
	}
	if err := os.WriteFile(filepath.Join(in.ConfDir, DefaultConf), []byte(`{"plugins": [{"type": "bridge"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := in.Uninstall(); err == nil || !strings.Contains(err.Error(), "of another plugin") {
		t.Errorf("uninstall of somebody else's network: %v", err)
	}
}
