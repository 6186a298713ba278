package main

import (
	"bytes"
	"crypto/sha256"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// A program that notes how it was called. Of `twill node install` and `uninstall` it does what the packages' scripts look at.
const fake = `#!/bin/sh
echo "$(basename "$0") $*" >>/calls
case "$*" in
"node install")
	mkdir -p /var/lib/twill /etc/twill && : >/var/lib/twill/installed.json && rm -f /etc/systemd/system/twill-node.service
	[ -e /etc/twill/node.env ] || (umask 077 && : >/etc/twill/node.env)
	;;
"node uninstall") rm /var/lib/twill/installed.json ;;
esac
`

var when = time.Date(2026, 11, 28, 0, 0, 0, 0, time.UTC)

// made makes the packages of a version, with small programs in the place of the binaries.
func made(t *testing.T, version string) (deb, rpm string) {
	t.Helper()
	binaries := t.TempDir()
	for _, name := range []string{"twill", "twill-cni"} {
		if err := os.WriteFile(filepath.Join(binaries, name), []byte(fake), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const tree = "../../bin/package"
	if _, err := os.Stat(tree); err != nil {
		t.Fatalf("%v: `make packages-test` writes it", err)
	}
	b := build{tree: tree, binaries: binaries, arch: "amd64", version: version, maintainer: "A Tester <tester@twill.example>", out: t.TempDir(), when: when}
	paths, err := b.packages()
	if err != nil {
		t.Fatal(err)
	}
	return paths[0], paths[1]
}

// inHost runs a script in a copy of this machine's files, of which nothing stays, and returns what it printed. The copy has a systemctl that notes
// how it is called, in /calls, and no systemd, unless the script makes /run/systemd/system.
func inHost(t *testing.T, script string, packages ...string) string {
	t.Helper()
	work, err := os.MkdirTemp("", "twill-packages-") // its name is an option of a mount, in which a test's name may have commas
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(work)
	if err := os.WriteFile(filepath.Join(work, "script"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(work, "systemctl"), []byte(fake), 0o755); err != nil {
		t.Fatal(err)
	}
	const outer = `set -eu
work=$1; shift
mount -t tmpfs tmpfs "$work"/layers
mkdir "$work"/layers/upper "$work"/layers/work "$work"/layers/root
mount -t overlay overlay -o lowerdir=/,upperdir="$work"/layers/upper,workdir="$work"/layers/work "$work"/layers/root
cd "$work"/layers/root
mount --rbind /dev dev
mount -t proc proc proc
mount -t tmpfs tmpfs run
cp "$work"/script "$@" tmp/
rm -f usr/sbin/policy-rc.d
rm -f usr/bin/systemctl
cp "$work"/systemctl usr/bin/systemctl
exec chroot . sh -eu /tmp/script
`
	if err := os.Mkdir(filepath.Join(work, "layers"), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", append([]string{"--mount", "--pid", "--fork", "sh", "-c", outer, "sh", work}, packages...)...)
	cmd.Env = append(os.Environ(), "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v\n%s%s", err, out.String(), errs.String())
	}
	return strings.TrimSpace(out.String())
}

// TestWhatDpkgDoes: what the package's scripts call, at each step, on hosts of several kinds; and what is left.
func TestWhatDpkgDoes(t *testing.T) {
	deb, _ := made(t, "v1.2.3")
	later, _ := made(t, "v1.2.4")
	steps := strings.NewReplacer("INSTALL", "dpkg --force-unsafe-io -i /tmp/"+filepath.Base(deb)+" >/dev/null", "UPGRADE", "dpkg --force-unsafe-io -i /tmp/"+filepath.Base(later)+" >/dev/null",
		"REMOVE", "dpkg -r twill >/dev/null", "PURGE", "dpkg -P twill >/dev/null", "SYSTEMD", "mkdir -p /run/systemd/system", "CALLS", "cat /calls; : >/calls")
	for _, tt := range []struct{ name, script, want string }{
		{
			"a host with systemd",
			"SYSTEMD; INSTALL; CALLS; echo upgrade; UPGRADE; CALLS; echo remove; REMOVE; CALLS; echo purge; PURGE; CALLS",
			"twill node install\nupgrade\nsystemctl daemon-reload\nsystemctl try-restart twill-node.service\nremove\ntwill node uninstall\nsystemctl daemon-reload\npurge\nsystemctl daemon-reload",
		},
		{"it is installed again, after it was removed", "SYSTEMD; INSTALL; REMOVE; : >/calls; INSTALL; CALLS", "twill node install"},
		{
			"an image is made",
			"INSTALL; CALLS; UPGRADE; REMOVE; PURGE; CALLS",
			"systemctl enable twill-boot.service twill-node.service\nsystemctl enable twill-boot.service twill-node.service",
		},
		{"its administrator lets no package start anything", `printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; SYSTEMD; INSTALL 2>/dev/null; CALLS`, "systemctl daemon-reload"},
		{"a policy that knows nothing of it", `printf '#!/bin/sh\nexit 100\n' >/usr/sbin/policy-rc.d; chmod +x /usr/sbin/policy-rc.d; SYSTEMD; INSTALL; CALLS`, "twill node install"},
		{
			"Twill was installed without a package",
			"SYSTEMD; mkdir -p /var/lib/twill /etc/twill; : >/var/lib/twill/installed.json; : >/etc/systemd/system/twill-node.service; echo NODENAME=h1 >/etc/twill/node.env; INSTALL; CALLS; cat /etc/twill/node.env",
			"twill node install\nNODENAME=h1",
		},
		{
			"settings are the user's: an upgrade and a removal keep them, a purge does not",
			"SYSTEMD; INSTALL; echo ETCD_PASSWORD=secret >>/etc/twill/node.env; UPGRADE; REMOVE; tail -n 1 /etc/twill/node.env; stat -c %a /etc/twill/node.env; PURGE; ls /etc/twill 2>&1 || :",
			"ETCD_PASSWORD=secret\n600\nls: cannot access '/etc/twill': No such file or directory",
		},
		{
			"a purge removes what daemons kept, and nothing of others",
			"SYSTEMD; INSTALL; mkdir -p /var/lib/twill/etcd/member-data; : >/var/lib/twill/nodename; : >/var/lib/twill/notes; REMOVE; ls /var/lib/twill; PURGE; ls /var/lib/twill", "etcd\nnodename\nnotes\nnotes",
		},
		{"dpkg has nothing to ask of an administrator", "SYSTEMD; INSTALL; dpkg-query -W -f '${Conffiles}' twill", ""},
		{"nothing is left in the file system", "SYSTEMD; INSTALL; REMOVE; PURGE; find / -xdev -name '*twill*' -not -path '/tmp/*' -not -path '/root/*' -not -path '/work/*' -not -path '/var/lib/dpkg/*' -not -path '/proc/*' -newer /tmp/script", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := inHost(t, steps.Replace(tt.script), deb, later); got != tt.want {
				t.Errorf("got\n%s\nwant\n%s", got, tt.want)
			}
		})
	}
}

// TestWhatRPMDoes: it starts nothing at the first installation, as its users expect, and says how to.
func TestWhatRPMDoes(t *testing.T) {
	_, rpm := made(t, "v1.2.3")
	_, later := made(t, "v1.2.4")
	const setUp = "mkdir -p /run/systemd/system /db; rpm='rpm --dbpath /db --nodeps'\n"
	got := inHost(t, setUp+"$rpm -i /tmp/"+filepath.Base(rpm)+" 2>&1 | grep ^twill:; ls /usr/bin/twill; twill node install; $rpm -U /tmp/"+filepath.Base(later)+"; $rpm -e twill; cat /calls; ls /usr/bin/twill 2>&1 || :", rpm, later)
	want := `twill: not started yet; start it by: twill node install
/usr/bin/twill
systemctl daemon-reload
twill node install
systemctl daemon-reload
systemctl try-restart twill-node.service
twill node uninstall
systemctl daemon-reload
ls: cannot access '/usr/bin/twill': No such file or directory`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func TestLintianIsContent(t *testing.T) {
	deb, _ := made(t, "v1.2.3")
	out, err := exec.CommandContext(t.Context(), "lintian", "--allow-root", "--fail-on", "warning,error", deb).CombinedOutput()
	// The programs in it are scripts here, of which no override of a static binary is used.
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

func TestEqualInputMakesEqualPackages(t *testing.T) {
	a, aRPM := made(t, "v1.2.3")
	b, bRPM := made(t, "v1.2.3")
	for x, y := range map[string]string{a: b, aRPM: bRPM} {
		one, err := os.ReadFile(x)
		if err != nil {
			t.Fatal(err)
		}
		two, err := os.ReadFile(y)
		if err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256(one) != sha256.Sum256(two) {
			t.Errorf("%s is not the same the second time", filepath.Base(x))
		}
	}
}

// TestVersionsAreOrderedAsTheyWereMade, by dpkg's own comparison; each is later than the one before it.
func TestVersionsAreOrderedAsTheyWereMade(t *testing.T) {
	last := ""
	for _, tt := range []struct {
		described string
		when      time.Time
		want      string
	}{
		{"0f3a2b1", when, "0~20261128.0f3a2b1"},
		{"7", when.AddDate(0, 0, 1), "0~20261129.7"},
		{"dev", when.AddDate(0, 0, 2), "0~20261130.dev"},
		{"bf15dded-dirty", when.AddDate(0, 0, 3), "0~20261201.bf15dded+dirty"},
		{"v0.9.0", when, "0.9.0"},
		{"v1.0.0-rc1", when, "1.0.0~rc1"},
		{"v1.0.0-rc1-4-gabcdef0", when, "1.0.0~rc1+4.gabcdef0"},
		{"v1.0.0-rc2", when, "1.0.0~rc2"},
		{"v1.0.0", when, "1.0.0"},
		{"v1.0.0-2-gfedcba9", when, "1.0.0+2.gfedcba9"},
		{"v1.0.0-12-gfedcba9-dirty", when, "1.0.0+12.gfedcba9+dirty"},
		{"1.1", when, "1.1"},
		{"v2", when, "2"},
	} {
		got := version(tt.described, tt.when)
		if got != tt.want {
			t.Errorf("%s is %s, want %s", tt.described, got, tt.want)
		}
		if last != "" && exec.CommandContext(t.Context(), "dpkg", "--compare-versions", last, "lt", got).Run() != nil {
			t.Errorf("%s is not later than %s", got, last)
		}
		last = got
	}
}
