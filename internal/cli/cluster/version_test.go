package cluster_test

import (
	"bufio"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/console"
)

func TestAClusterSaysWhatItIs(t *testing.T) {
	c := newCLI(t)
	clitest.Contains(t, c.Want(0, "", "version"), "nothing is known of it")
	c.Raw("clusterinformations/default", `{"kind":"ClusterInformation","apiVersion":"projectcalico.org/v3","metadata":{"name":"default"},"spec":{"clusterGUID":"0123","clusterType":"k8s,bgp","calicoVersion":"v3.30.1","variant":"Calico","datastoreReady":false}}`)
	clitest.Contains(t, c.Want(0, "", "version"), "cluster GUID: 0123\ncluster type: k8s,bgp\ncluster version: v3.30.1\ndatastore: locked; twill datastore unlock opens it\n")
	c.Want(0, "", "datastore", "unlock")
	clitest.Contains(t, c.Stored("clusterinformations/default"), `"calicoVersion":"v3.30.1"`, `"variant":"Calico"`, `"datastoreReady":true`)
	clitest.Contains(t, c.Want(0, "", "get", "clusterinformation", "default", "-o", "yaml"), "variant: Calico\n")
}

// TestWhatIsNewOfTheClusterIsPrinted with --poll, and what is as before is not.
func TestWhatIsNewOfTheClusterIsPrinted(t *testing.T) {
	c := newCLI(t)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	code := make(chan int, 1)
	go func() {
		code <- cli.Execute(ctx, c.Env(console.Stdio{In: strings.NewReader(""), Out: in, Err: io.Discard}), []string{"version", "--poll", "1ms"})
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	wantText := func(want string) {
		t.Helper()
		for wanted := range strings.Lines(want) {
			if !lines.Scan() || !strings.HasPrefix(lines.Text(), strings.TrimSpace(wanted)) {
				t.Fatalf("it prints %q, want %q", lines.Text(), wanted)
			}
		}
	}
	const cluster = "cluster GUID:\ncluster type:\ncluster version:\n"
	wantText("twill dev\ncluster: nothing is known of it")
	c.Want(0, "", "datastore", "lock")
	wantText(cluster + "datastore: locked")
	c.Want(0, "", "datastore", "unlock")
	wantText(cluster + "datastore: ")
	cancel()
	if got := <-code; got != 0 {
		t.Errorf("exit code %d", got)
	}
}
