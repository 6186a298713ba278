package bgp_test

import (
	"context"
	"flag"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

var update = flag.Bool("update", false, "write what templates render to; read it before you commit it")

// etcd is the datastore of a test: a real one. Its commands are twill's, on h1.
type etcd struct {
	*testing.T
	at string
}

func startEtcd(t *testing.T, resources string) etcd {
	t.Helper()
	dir, err := os.MkdirTemp("", "confd") // short enough for a socket's name
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	m, err := member.Start(t.Context(), member.Config{Dir: filepath.Join(dir, "data"), ListenClient: []string{"unix://" + filepath.Join(dir, "s")}, StartTimeout: 2 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	t.Setenv("NODENAME", "h1")
	e := etcd{t, m.Endpoints()[0]}
	if code, out := e.twill("apply", "-f", filepath.Join("testdata/confd", resources)); code != 0 {
		t.Fatal(out)
	}
	return e
}

// twill runs a command. It returns its exit code and all that it printed.
func (e etcd) twill(args ...string) (int, string) {
	e.Helper()
	var out strings.Builder
	env := &conn.Env{Stdio: console.Stdio{In: strings.NewReader(""), Out: &out, Err: &out}}
	code := cli.Execute(e.Context(), env, append(args, "--timeout", "1m", "--etcd", e.at))
	return code, out.String()
}

// set copies a template set of testdata. Where it says /DIR, what it writes goes.
func (e etcd) set(name string) (dir, dest string) {
	e.Helper()
	dir, dest = e.TempDir(), e.TempDir()
	from := os.DirFS(filepath.Join("testdata/confd", name))
	err := fs.WalkDir(from, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(from, path)
		if err == nil {
			write(e.T, filepath.Join(dir, path), strings.ReplaceAll(string(text), "/DIR", dest))
		}
		return err
	})
	if err != nil {
		e.Fatal(err)
	}
	return dir, dest
}

func write(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// confd renders a directory of templates once.
func (e etcd) confd(dir string) (int, string) {
	e.Helper()
	return e.twill("confd", "--onetime", "--confdir", dir, "--output=", "--bird-socket=", "--secrets-dir", "testdata/confd/secrets")
}

// TestARunningConfdFollowsTheDatastoreAndTheDirectory, and a set that is broken next to others changes nothing but what is said of it.
func TestARunningConfdFollowsTheDatastoreAndTheDirectory(t *testing.T) {
	e := startEtcd(t, "guide.yaml")
	dir, dest := e.set("reload")
	other := t.TempDir()
	write(t, filepath.Join(dir, "conf.d", "hosts.toml"), "[template]\nsrc = \"hosts\"\ndest = \""+other+"/hosts\"\nkeys = [\"/calico/bgp/v1/host\"]\nreload_cmd = \"cp "+other+"/hosts "+other+"/seen\"\n")
	write(t, filepath.Join(dir, "templates", "hosts"), `{{join (getvs "/calico/bgp/v1/host/*/ip_addr_v4") " "}}`)
	ctx, end := context.WithCancel(t.Context())
	ended := make(chan int, 1)
	go func() {
		env := &conn.Env{Stdio: console.Stdio{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}}
		ended <- cli.Execute(ctx, env, []string{"confd", "--confdir", dir, "--output=", "--bird-socket=", "--socket=", "--data-dir", t.TempDir(), "--timeout", "1m", "--etcd", e.at})
	}()
	t.Cleanup(func() {
		end()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d", code)
		}
	})
	e.await(filepath.Join(other, "seen"), "192.0.2.1 192.0.2.2")
	e.fails(dest, "motd") // it reads an address range that nobody set
	if code, out := e.twill("delete", "node", "h2"); code != 0 {
		t.Fatal(out)
	}
	e.await(filepath.Join(other, "seen"), "192.0.2.1")
	write(t, filepath.Join(dir, "templates", "hosts"), `hosts: {{join (getvs "/calico/bgp/v1/host/*/ip_addr_v4") " "}}`)
	e.await(filepath.Join(other, "seen"), "hosts: 192.0.2.1")
	write(t, filepath.Join(dir, "templates", "motd.tmpl"), "mended")
	e.await(filepath.Join(dest, "motd"), "mended")
}

// await waits until a file has a text.
func (e etcd) await(file, want string) {
	e.Helper()
	for got := ""; got != want; {
		text, _ := os.ReadFile(file) // there may be none yet
		got = string(text)
		select {
		case <-e.Context().Done():
			e.Fatalf("%s is %q, want %q", file, got, want)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// fails wants that a file was not made.
func (e etcd) fails(dir, name string) {
	e.Helper()
	if _, err := os.Stat(filepath.Join(dir, name)); err == nil {
		e.Errorf("%s is there", name)
	}
}

// TestTemplateSetsRenderAsDocumented: five sets that have most of confd's functions, from a real etcd. BIRD 2 takes that which is for it.
func TestTemplateSetsRenderAsDocumented(t *testing.T) {
	machinetest.Program(t, "bird")
	e := startEtcd(t, "resources.yaml")
	for name, says := range map[string]string{
		"bird2": "peer_v4/192.0.2.253 is left out: password", "bird16": "", "communities": "", "scrape": "",
		"reload": `motd is replaced, but reload_cmd failed: "echo it will not; exit 3": exit status 3: it will not`,
	} {
		t.Run(name, func(t *testing.T) {
			e := etcd{t, e.at}
			dir, dest := e.set(name)
			if code, out := e.confd(dir); (code != 0) != (name == "reload") || !strings.Contains(out, says) {
				t.Errorf("exit code %d, want %q:\n%s", code, says, out)
			}
			rendered, err := os.ReadDir(dest)
			if err != nil || len(rendered) == 0 {
				t.Fatalf("%d files, %v", len(rendered), err)
			}
			for _, f := range rendered {
				got, err := os.ReadFile(filepath.Join(dest, f.Name()))
				if err != nil {
					t.Fatal(err)
				}
				golden := filepath.Join("testdata/confd", name, "want", f.Name())
				if *update {
					write(t, golden, string(got))
				}
				if want, err := os.ReadFile(golden); err != nil || string(got) != string(want) {
					t.Errorf("%s (%v):\n%s", f.Name(), err, got)
				}
			}
			if want, err := os.ReadDir(filepath.Join("testdata/confd", name, "want")); err != nil || len(want) != len(rendered) {
				t.Errorf("%d files are rendered, want %d (%v)", len(rendered), len(want), err)
			}
		})
	}
}
