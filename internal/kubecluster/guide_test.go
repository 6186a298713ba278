package kubecluster

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestTheGuideProtectsANamespace runs the commands of docs/kubernetes.md, of which make kube is done already, one after the other in one shell, and
// wants of each what the page says; … stands for anything within a line.
func TestTheGuideProtectsANamespace(t *testing.T) {
	c := theCluster(t)
	page, err := os.ReadFile("../../docs/kubernetes.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```console\n")
	block, _, _ := strings.Cut(rest, "```")
	first, _, _ := strings.Cut(block, "\n")
	if want := "$ make kube && export KUBECONFIG=" + c.Kubeconfig() + " DATASTORE_TYPE=kubernetes"; first != want {
		t.Fatalf("the guide begins with %q, want %q", first, want)
	}
	const end = "=== the next ==="
	var script strings.Builder
	var wants [][2]string // commands, and what each says
	for _, part := range strings.Split("\n"+block, "\n$ ")[2:] {
		command, says, _ := strings.Cut(part, "\n")
		for strings.HasPrefix(says, "> ") {
			line, more, _ := strings.Cut(says[2:], "\n")
			command, says = command+"\n"+line, more
		}
		wants = append(wants, [2]string{command, strings.TrimSpace(says)})
		script.WriteString(command + "\necho '" + end + "'\n")
	}
	if len(wants)+1 != 10 {
		t.Errorf("%d commands are not ten", len(wants)+1)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", "exec 2>&1\n"+script.String())
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "DATASTORE_TYPE=kubernetes", "PATH="+filepath.Dir(c.Kubectl())+":"+filepath.Dir(c.Twill)+":"+os.Getenv("PATH"))
	t.Cleanup(func() {
		if out, err := exec.Command(c.Kubectl(), "--kubeconfig="+c.Kubeconfig(), "delete", "namespace", "shop", "--wait=false").CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, got := range strings.SplitN(string(out), end+"\n", len(wants)+1)[:len(wants)] {
		want := strings.ReplaceAll(regexp.QuoteMeta(wants[i][1]), "…", ".*")
		if got = strings.TrimSpace(got); !regexp.MustCompile("^" + want + "$").MatchString(got) {
			t.Errorf("$ %s\n%s\nwant\n%s", wants[i][0], got, wants[i][1])
		}
	}
}
