package node

import (
	"context"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// withPackage puts a package's files into a host, with a binary of that content.
func withPackage(t *testing.T, in Install, content string) {
	t.Helper()
	files := append(PackageFiles(), PackageFile{Path: packageBinary, Content: []byte(content), Mode: 0o755})
	for _, f := range files {
		if err := os.MkdirAll(filepath.Dir(in.Root+f.Path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(in.Root+f.Path, f.Content, f.Mode); err != nil {
			t.Fatal(err)
		}
	}
}

// TestOverAPackageNothingIsWrittenTwice: the package's files stay as they are; how the host was found is noted, and given back; settings are made, and stay.
func TestOverAPackageNothingIsWrittenTwice(t *testing.T) {
	in, _, calls := host(t)
	withPackage(t, in, "a binary")
	in.Exe = in.Root + packageBinary
	before := tree(t, in.Root)
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"daemon-reload", "enable --now twill-boot.service", "enable twill-node.service", "restart twill-node.service"}; !slices.Equal(*calls, want) {
		t.Errorf("systemctl was called with %q, want %q", *calls, want)
	}
	now := tree(t, in.Root)
	for path, mode := range map[string]string{confDir: "d", EnvFile: "-rw-------", configFile: "-rw-r--r--"} {
		if !strings.HasPrefix(now[path], mode) {
			t.Errorf("%s is %.40q", path, now[path])
		}
		before[path] = now[path]
	}
	delete(now, journal)
	delete(now, stateDir)
	if !maps.Equal(before, now) {
		t.Errorf("it changed files of the package:\nbefore %v\nafter %v", before, now)
	}
	var given map[string]string
	in.Leave = func(_ context.Context, found map[string]string) ([]string, error) {
		given = found
		return nil, nil
	}
	if err := in.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if given["ipv4/ip_forward"] != "0" {
		t.Errorf("the kernel is given back %v", given)
	}
	if after := tree(t, in.Root); !maps.Equal(before, after) {
		t.Errorf("after uninstall there are\n%v, before\n%v", slices.Sorted(maps.Keys(after)), slices.Sorted(maps.Keys(before)))
	}
	if err := in.Uninstall(t.Context(), false); err != nil { // as a package does that was never started
		t.Errorf("again: %v", err)
	}
}

func TestSettingsOfAPackagedHostAreChangedInItsFile(t *testing.T) {
	in, _, _ := host(t)
	withPackage(t, in, "a binary")
	in.Exe = in.Root + packageBinary
	in.Env = []string{"NODENAME=h1"}
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := in.Uninstall(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, in.Root)[EnvFile]; !strings.HasPrefix(got, "-rw------- ") || !strings.HasSuffix(got, "\nNODENAME=h1\n") {
		t.Errorf("the environment file is %q", got)
	}
}

// TestAPackageTakesOverWhatWasInstalledWithout: units in /etc would win over the package's, and run the old binary.
func TestAPackageTakesOverWhatWasInstalledWithout(t *testing.T) {
	in, _, _ := host(t)
	in.Env = []string{"NODENAME=h1"}
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	withPackage(t, in, "the package's binary")
	in.Exe = in.Root + packageBinary
	in.Env = nil
	in.Found = func() (map[string]string, error) { return map[string]string{"ipv4/ip_forward": "1"}, nil } // by us, since
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	now := tree(t, in.Root)
	for _, f := range []string{binary, units + bootUnit, units + nodeUnit} {
		if _, there := now[f]; there {
			t.Errorf("%s is left", f)
		}
	}
	in.Leave = func(_ context.Context, found map[string]string) ([]string, error) {
		if found["ipv4/ip_forward"] != "0" {
			t.Errorf("the kernel is given back %v, not what was found at first", found)
		}
		return nil, nil
	}
	if err := in.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if got := tree(t, in.Root)[EnvFile]; !strings.HasSuffix(got, "\nNODENAME=h1\n") {
		t.Errorf("settings, which are the package's by then, are %q", got)
	}
}

// TestAnotherBinaryDoesNotInstallOverAPackage, whose upgrades would undo it.
func TestAnotherBinaryDoesNotInstallOverAPackage(t *testing.T) {
	in, _, calls := host(t)
	withPackage(t, in, "the package's binary")
	before := tree(t, in.Root)
	if err := in.Install(t.Context()); err == nil || !strings.Contains(err.Error(), "/usr/bin/twill node install") {
		t.Errorf("got %v", err)
	}
	if after := tree(t, in.Root); !maps.Equal(before, after) || len(*calls) > 0 {
		t.Errorf("it changed something: %v, systemctl %q", after, *calls)
	}
}

func TestADryRunOverAPackageChangesNothing(t *testing.T) {
	in, out, _ := host(t)
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	withPackage(t, in, "the package's binary")
	in.Exe = in.Root + packageBinary
	before := tree(t, in.Root)
	in.DryRun = true
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, in.Root); !maps.Equal(before, after) || !strings.Contains(out.String(), "remove "+in.Root+units+nodeUnit) {
		t.Errorf("after a dry run there are %v; it says\n%s", after, out)
	}
}
