package etcd_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// start starts a member on a socket, and returns its endpoint.
func start(t *testing.T, cfg member.Config) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "etcd") // short, as the name of a socket must be
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	cfg.ListenClient, cfg.StartTimeout = []string{"unix://" + filepath.Join(dir, "s")}, clitest.Patience
	m, err := member.Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return cfg.ListenClient[0]
}

// run runs a command that must end with code, and returns all it prints.
func run(t *testing.T, code int, args ...string) string {
	t.Helper()
	var out bytes.Buffer
	e := clitest.Env(console.Stdio{In: strings.NewReader(""), Out: &out, Err: &out})
	if got := cli.Execute(context.WithoutCancel(t.Context()), e, args); got != code {
		t.Errorf("twill %s: exit code %d, want %d\n%s", strings.Join(args, " "), got, code, out.String())
	}
	return out.String()
}

func TestABackupAndItsRestoreByCommands(t *testing.T) {
	t.Setenv("ETCD_ENDPOINTS", start(t, member.Config{Dir: t.TempDir()}))
	run(t, 0, "apply", "-f", "../testdata/prod.yaml")
	want := run(t, 0, "get", "networkpolicies", "-A")
	clitest.Contains(t, run(t, 0, "etcd", "status"), "NAME   ROLE    VERSION", "twill  leader  ", "1 voting member of 1 answer; none of them may fail\n")
	clitest.Contains(t, run(t, 0, "etcd", "status", "-o", "jsonpath={.members[0].name} {.mayFail}"), "twill 0")
	dir := t.TempDir()
	file := filepath.Join(dir, "backup.db")
	clitest.Contains(t, run(t, 0, "etcd", "snapshot", file), file+": ", " keys of revision ")
	clitest.Contains(t, run(t, 1, "etcd", "snapshot", file), "a backup is not overwritten")
	clitest.Contains(t, run(t, 0, "etcd", "defrag", "--compact"), "MEMBER  BEFORE", "twill   ")
	clitest.Contains(t, run(t, 0, "etcd", "alarm", "list"), "There is no alarm.")
	clitest.Contains(t, run(t, 0, "etcd", "alarm", "disarm"), "There was no alarm.")

	run(t, 2, "etcd", "restore", file)
	run(t, 2, "etcd", "restore", "--data-dir", dir)
	made := filepath.Join(dir, "restored")
	clitest.Contains(t, run(t, 0, "etcd", "restore", file, "--data-dir", made), made+": ", "as member twill at revision 10737", "Start `twill node`", "`twill etcd --data-dir "+made+"`")
	clitest.Contains(t, run(t, 1, "etcd", "restore", file, "--data-dir", made), "is not empty; stop the member that it belongs to")
	t.Setenv("ETCD_ENDPOINTS", start(t, member.Config{Dir: made}))
	clitest.Equal(t, clitest.Ageless(run(t, 0, "get", "networkpolicies", "-A")), clitest.Ageless(want))
}

func TestAFullDatastoreIsEmptiedByTheCommandsThatItsErrorNames(t *testing.T) {
	t.Setenv("ETCD_ENDPOINTS", start(t, member.Config{Dir: t.TempDir(), Quota: 2 << 20, Retention: -1}))
	large := filepath.Join(t.TempDir(), "large.yaml")
	refusal := ""
	for i := range 1000 {
		set := "apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata: {name: large, annotations: {a: '" + strings.Repeat(string(rune('a'+i%26)), 100_000) + "'}}\n"
		if err := os.WriteFile(large, []byte(set), 0o600); err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		e := clitest.Env(console.Stdio{In: strings.NewReader(""), Out: &out, Err: &out})
		if cli.Execute(t.Context(), e, []string{"apply", "-f", large}) != 0 {
			refusal = out.String()
			break
		}
	}
	clitest.Contains(t, refusal, "datastore is full", "`twill etcd defrag --compact`, then `twill etcd alarm disarm`")
	clitest.Contains(t, run(t, 1, "etcd", "status"), "NOSPACE", "twill has the alarm NOSPACE")
	clitest.Contains(t, run(t, 1, "etcd", "alarm", "list"), "MEMBER  ALARM\ntwill   NOSPACE\n")
	clitest.Contains(t, run(t, 1, "etcd", "alarm", "disarm"), "efragment first", "`twill etcd defrag")
	run(t, 0, "etcd", "defrag", "--compact")
	clitest.Contains(t, run(t, 0, "etcd", "alarm", "disarm"), "MEMBER  ALARM\ntwill   NOSPACE\n")
	run(t, 0, "apply", "-f", large)
	run(t, 0, "etcd", "status")
}

func TestAnErrorSaysThatThereIsNoEtcd(t *testing.T) {
	t.Setenv("ETCD_ENDPOINTS", "unix:///nowhere/s")
	clitest.Contains(t, run(t, 1, "etcd", "status", "--timeout", "1s"), "No datastore answers at unix:///nowhere/s")
	t.Setenv("DATASTORE_TYPE", "kubernetes")
	clitest.Contains(t, run(t, 1, "etcd", "status"), "the datastore is Kubernetes' API: its etcd is the cluster's")
}

// daemon runs a command until it ends, or the test does, and returns its exit code.
func daemon(t *testing.T, args ...string) <-chan int {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	code := make(chan int, 1)
	ended := make(chan struct{})
	e := clitest.Env(console.Stdio{In: strings.NewReader(""), Out: t.Output(), Err: t.Output()})
	go func() {
		defer close(ended)
		code <- cli.Execute(ctx, e, args)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return code
}

// await runs a command until it says so.
func await(t *testing.T, want string, args ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for {
		var out bytes.Buffer
		e := clitest.Env(console.Stdio{In: strings.NewReader(""), Out: &out, Err: &out})
		cli.Execute(ctx, e, args)
		if strings.Contains(out.String(), want) {
			return
		}
		if ctx.Err() != nil {
			t.Fatalf("twill %s says\n%s\nwant %q", strings.Join(args, " "), out.String(), want)
		}
		<-time.After(20 * time.Millisecond)
	}
}

// TestMembersJoinAndLeaveByCommands, with the certificates that a command made: the first has the data of a member on a socket, as a node's is.
func TestMembersJoinAndLeaveByCommands(t *testing.T) {
	dir, err := os.MkdirTemp("", "etcd")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	in := func(name string) string { return filepath.Join(dir, name) }
	run(t, 0, "etcd", "certs", "--dir", in("pki"), "--member", "h1=127.0.0.1", "--member", "h2=127.0.0.1", "--client", "agent")
	alone, err := member.Start(t.Context(), member.Config{Dir: in("h1"), ListenClient: []string{"unix://" + in("s")}, StartTimeout: clitest.Patience})
	if err != nil {
		t.Fatal(err)
	}
	run(t, 0, "apply", "-f", "../testdata/prod.yaml", "--etcd", "unix://"+in("s"))
	alone.Close()

	serving := func(name string) []string {
		return []string{
			"--name", name, "--data-dir", in(name), "--certs", in("pki/" + name), "--listen-peer", "https://" + machinetest.Address(t),
			"--listen", "https://" + machinetest.Address(t),
		}
	}
	first, second := serving("h1"), serving("h2")
	daemon(t, append([]string{"etcd"}, first...)...)
	url := func(of []string) string { return of[len(of)-1] }
	t.Setenv("ETCD_ENDPOINTS", url(first)+","+url(second))
	t.Setenv("ETCD_CA_CERT_FILE", in("pki/agent/ca.crt"))
	t.Setenv("ETCD_CERT_FILE", in("pki/agent/client.crt"))
	t.Setenv("ETCD_KEY_FILE", in("pki/agent/client.key"))
	await(t, "1 voting member of 1 answer", "etcd", "status")
	joined := daemon(t, append([]string{"etcd", "join"}, second...)...)
	await(t, "2 voting members of 2 answer; none of them may fail", "etcd", "status")
	clitest.Contains(t, run(t, 0, "get", "networkpolicies", "-A", "--etcd", url(second)), "prod")
	clitest.Contains(t, run(t, 1, "etcd", "leave", "h9"), "member h9: not found; `twill etcd status -o wide` shows names and IDs")
	run(t, 2, "etcd", "leave")
	run(t, 2, "etcd", "join", "--name", "h3")
	clitest.Contains(t, run(t, 0, "etcd", "leave", "h2"), "member h2 is out of the cluster")
	if code := <-joined; code != 1 {
		t.Errorf("what ran the member ended with %d", code)
	}
	await(t, "1 voting member of 1 answer", "etcd", "status")
	clitest.Contains(t, run(t, 1, "etcd", "leave", "h1"), "h1 is the last member that votes, and has all the data")
}
