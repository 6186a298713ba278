package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// tree is all files below a directory, with mode and content.
func tree(t *testing.T, root string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		content := ""
		if !d.IsDir() {
			b, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			content = string(b)
		}
		out[strings.TrimPrefix(path, root)] = fmt.Sprint(info.Mode(), " ", content)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// host is a root directory, a binary to install, and a systemd that remembers.
func host(t *testing.T) (Install, *bytes.Buffer, *[]string) {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"/etc/systemd/system", "/usr/local/bin", "/var/lib"} {
		if err := os.MkdirAll(root+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	exe := filepath.Join(t.TempDir(), "twill")
	if err := os.WriteFile(exe, []byte("a binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	var calls []string
	out := &bytes.Buffer{}
	return Install{
		Exe: exe, Root: root, Start: true, Out: out,
		System: func(_ context.Context, args ...string) error {
			calls = append(calls, strings.Join(args, " "))
			return nil
		},
		Found: func() (map[string]string, error) { return map[string]string{"ipv4/ip_forward": "0"}, nil },
	}, out, &calls
}

func TestUninstallLeavesTheHostAsItWasFound(t *testing.T) {
	in, _, calls := host(t)
	before := tree(t, in.Root)
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []string{"daemon-reload", "enable --now twill-boot.service", "enable twill-node.service", "restart twill-node.service"}
	if !slices.Equal(*calls, want) {
		t.Errorf("systemctl was called with %q, want %q", *calls, want)
	}
	if got := tree(t, in.Root)["/usr/local/bin/twill"]; got != "-rwxr-xr-x a binary" {
		t.Errorf("the binary is %q", got)
	}
	*calls = nil
	var given map[string]string
	in.Leave = func(_ context.Context, found map[string]string) ([]string, error) {
		if !slices.Equal(*calls, []string{"disable --now twill-node.service twill-boot.service"}) {
			t.Errorf("the kernel is left before the daemons are: %q", *calls)
		}
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
		t.Errorf("before\n%v\nafter\n%v", slices.Sorted(maps.Keys(before)), slices.Sorted(maps.Keys(after)))
	}
}

func TestAnUpgradeReplacesTheBinaryAndKeepsSettings(t *testing.T) {
	in, _, _ := host(t)
	if err := os.MkdirAll(in.Root+"/etc/twill", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(in.Root+"/etc/twill/twill.conf", []byte("interfacePrefix = tap\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	before := tree(t, in.Root)
	for _, content := range []string{"one", "two"} {
		if err := os.WriteFile(in.Exe, []byte(content), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := in.Install(t.Context()); err != nil {
			t.Fatal(err)
		}
		in.Found = func() (map[string]string, error) { return map[string]string{"ipv4/ip_forward": "1"}, nil } // by us, since
	}
	now := tree(t, in.Root)
	if now["/usr/local/bin/twill"] != "-rwxr-xr-x two" || !strings.HasSuffix(now["/etc/twill/twill.conf"], "interfacePrefix = tap\n") {
		t.Errorf("after an upgrade there are %q and %q", now["/usr/local/bin/twill"], now["/etc/twill/twill.conf"])
	}
	in.Leave = func(_ context.Context, found map[string]string) ([]string, error) {
		if found["ipv4/ip_forward"] != "0" {
			t.Errorf("the kernel is given back %v, not what the first install found", found)
		}
		return nil, nil
	}
	if err := in.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, in.Root); !maps.Equal(before, after) {
		t.Errorf("before\n%v\nafter\n%v", before, after)
	}
}

func TestTheDatastoreStaysUnlessPurged(t *testing.T) {
	in, out, _ := host(t)
	before := tree(t, in.Root)
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(in.Root+"/var/lib/twill/etcd/member", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := in.Uninstall(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(in.Root + "/var/lib/twill/etcd/member"); err != nil || !strings.Contains(out.String(), "--purge") {
		t.Errorf("the data: %v; said %s", err, out)
	}
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := in.Uninstall(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(in.Root + "/var/lib/twill"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after --purge the directory is there: %v; before there were %v", err, before)
	}
}

// TestPurgeFindsTheDataWhereItIs: in the directory that the unit names, and only what is ours there.
func TestPurgeFindsTheDataWhereItIs(t *testing.T) {
	files := func(in Install, names ...string) {
		t.Helper()
		for _, name := range names {
			if err := errors.Join(os.MkdirAll(in.Root+filepath.Dir(name), 0o755), os.WriteFile(in.Root+name, []byte("x"), 0o600)); err != nil {
				t.Fatal(err)
			}
		}
	}
	const dropIn = "/etc/systemd/system/twill-node.service.d/dir.conf"
	for _, tt := range []struct {
		name, exec string
		data       []string // by flag
		ours       []string
		others     []string
	}{
		{name: "the usual one, in which others have put something", ours: []string{"/var/lib/twill/nodename", "/var/lib/twill/etcd/x"}, others: []string{"/var/lib/twill/notes.txt"}},
		{name: "one that the unit names", exec: "/usr/local/bin/twill node --data-dir /srv/twill --bgp=bird", ours: []string{"/srv/twill/nodename", "/srv/twill/bgp-plan.json", "/srv/twill/etcd/member-data/x"}, others: []string{"/srv/x"}},
		{name: "in another form", exec: `/usr/local/bin/twill node --data-dir="/srv/twill"`, ours: []string{"/srv/twill/nodename"}, others: []string{"/srv/x"}},
		{name: "one that is named by hand", data: []string{"/srv/twill/"}, ours: []string{"/srv/twill/nodename"}, others: []string{"/srv/x"}},
		{name: "one that others use", exec: "/usr/local/bin/twill node --data-dir /srv", ours: []string{"/srv/nodename", "/srv/bgp-plan.json"}, others: []string{"/srv/etcd/member/x", "/srv/cni/x"}},
		{name: "one in which no node of ours was", exec: "/usr/local/bin/twill node --data-dir /srv", others: []string{"/srv/bgp-plan.json", "/srv/etcd/x"}},
		{name: "one that is none", exec: "/usr/local/bin/twill node --data-dir .", others: []string{"/srv/nodename"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in, _, _ := host(t)
			in.Data = tt.data
			if err := in.Install(t.Context()); err != nil {
				t.Fatal(err)
			}
			files(in, dropIn)
			if err := os.WriteFile(in.Root+dropIn, []byte("[Service]\nExecStart=\nExecStart="+tt.exec+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			files(in, append(tt.ours, tt.others...)...)
			if err := in.Uninstall(t.Context(), true); err != nil {
				t.Fatal(err)
			}
			left := tree(t, in.Root)
			for _, f := range tt.ours {
				if _, there := left[f]; there {
					t.Errorf("%s is left", f)
				}
			}
			for _, f := range tt.others {
				if _, there := left[f]; !there {
					t.Errorf("%s is gone, which is not ours", f)
				}
			}
			if _, there := left["/srv/twill"]; there {
				t.Error("an empty directory of ours is left")
			}
		})
	}
}

func TestADryRunChangesNothing(t *testing.T) {
	in, out, calls := host(t)
	before := tree(t, in.Root)
	in.DryRun = true
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	if after := tree(t, in.Root); !maps.Equal(before, after) || len(*calls) > 0 {
		t.Errorf("after a dry run there are %v, and systemctl was called with %v", after, *calls)
	}
	if !strings.Contains(out.String(), "write "+in.Root+"/usr/local/bin/twill") || !strings.Contains(out.String(), "systemctl [restart twill-node.service]") {
		t.Errorf("it says\n%s", out)
	}
}

func TestUninstallOfNothingSaysSo(t *testing.T) {
	in, _, _ := host(t)
	if err := in.Uninstall(t.Context(), false); err == nil || !strings.Contains(err.Error(), "nothing was installed") {
		t.Errorf("got %v", err)
	}
}

func TestSystemdUnderstandsTheUnits(t *testing.T) {
	analyze := machinetest.Program(t, "systemd-analyze")
	dir := t.TempDir()
	var paths []string
	for name, text := range unitTexts("/bin/true", "# A comment.") {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		paths = append(paths, path)
	}
	out, err := exec.Command(analyze, append([]string{"verify", "--man=no", "--recursive-errors=no"}, paths...)...).CombinedOutput()
	if err != nil || len(out) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestSettingsThatAreGivenAreChangedOnAnInstalledHost(t *testing.T) {
	in, out, calls := host(t)
	in.Env = []string{"ETCD_ENDPOINTS=http://192.0.2.1:2379", "NODENAME=h1"}
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	env := filepath.Join(in.Root, "etc/twill/node.env")
	text, err := os.ReadFile(env)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(env, []byte(string(text)+"ETCD_PASSWORD=secret\n# mine\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	*calls = nil
	in.Env = []string{"ETCD_ENDPOINTS=http://192.0.2.9:2379", "ETCD_CA_CERT_FILE=/ca"}
	if err := in.Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := strings.Replace(string(text), "=http://192.0.2.1:2379\n", "=http://192.0.2.9:2379\n", 1) + "ETCD_PASSWORD=secret\n# mine\nETCD_CA_CERT_FILE=/ca\n"
	if got := tree(t, in.Root)["/etc/twill/node.env"]; got != "-rw------- "+want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	for _, line := range []string{"ETCD_ENDPOINTS=http://192.0.2.9:2379, which was ETCD_ENDPOINTS=http://192.0.2.1:2379", "ETCD_CA_CERT_FILE=/ca, which is new"} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("it does not say %q:\n%s", line, out)
		}
	}
	if !slices.Contains(*calls, "restart twill-node.service") {
		t.Errorf("systemctl was called with %q", *calls)
	}
	before := tree(t, in.Root)
	out.Reset()
	if err := in.Install(t.Context()); err != nil || !maps.Equal(before, tree(t, in.Root)) || !strings.Contains(out.String(), "keep "+env) {
		t.Errorf("again: %v\n%s", err, out)
	}
}

func TestLinesOfAnEnvironmentFile(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"one that is there", "A=1\nB=2\n", "A=9\nB=2\n"},
		{"one that is only a comment", "# A=1\n", "# A=1\nA=9\n"},
		{"several, of which systemd takes the last", "A=1\nB=2\nA=3\n", "A=9\nB=2\n"},
		{"the right one, and a later one that overrides it", "A=9\nA=3\n", "A=9\n"},
		{"a name that begins alike", "AB=1\n", "AB=1\nA=9\n"},
		{"no line's end", "A=1", "A=9\n"},
	} {
		if got, logged := withLines(tt.text, []string{"A=9"}); got != tt.want || len(logged) == 0 {
			t.Errorf("%s: %q, want %q; it says %q", tt.name, got, tt.want, logged)
		}
	}
}
