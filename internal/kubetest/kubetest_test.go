package kubetest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience bounds what is waited for; it only says how long a test that fails takes.
const patience = time.Minute

type configMap struct {
	Metadata struct{ Name, Namespace, UID, ResourceVersion string } `json:"metadata"`
	Data     map[string]string                                      `json:"data"`
}

func writeConfigMap(t *testing.T, s *Server, ns, name, value string) {
	t.Helper()
	s.Apply(t, fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s, namespace: %s}\ndata: {k: %s}\n", name, ns, value))
}

func readConfigMap(t *testing.T, c *Client, ns, name string) (m configMap, err error) {
	t.Helper()
	err = c.Call(t.Context(), "GET", "/api/v1/namespaces/"+ns+"/configmaps/"+name, nil, &m)
	return m, err
}

// refused reports whether an answer is that of RBAC.
func refused(err error) bool {
	var status *StatusError
	return errors.As(err, &status) && status.Code == 403 && status.Reason == "Forbidden"
}

// await repeats what is so a moment after the server has changed.
func await(t *testing.T, what string, is func() (bool, error)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		ok, err := is()
		if ok {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			t.Fatalf("%s: not so; last error: %v", what, err)
		}
	}
}

func TestAServerIsTheOneThatWasBuilt(t *testing.T) {
	s := Start(t)
	var version struct{ GitVersion string }
	if err := s.Admin().Call(t.Context(), "GET", "/version", nil, &version); err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != s.programs.Version {
		t.Errorf("it says %q, want %s", version.GitVersion, s.programs.Version)
	}
	if Start(t) != s {
		t.Error("a second Start gives another server")
	}
	t.Logf("%s, %d MiB", version.GitVersion, s.MemoryKiB(t)>>10)
}

func TestATokenHasTheRightsOfItsAccountAlone(t *testing.T) {
	s := Start(t)
	ns := s.Namespace(t)
	writeConfigMap(t, s, ns, "a", "one")
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: reader, namespace: "+ns+"}\n")
	reader := s.As(s.Token(t, ns, "reader"))
	if _, err := readConfigMap(t, reader, ns, "a"); !refused(err) {
		t.Fatalf("without a role: error %v, want 403", err)
	}
	s.Apply(t, strings.ReplaceAll(`
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader, namespace: NS}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader, namespace: NS}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects: [{kind: ServiceAccount, name: reader, namespace: NS}]
`, "NS", ns))
	await(t, "the role is in force", func() (bool, error) {
		_, err := readConfigMap(t, reader, ns, "a")
		return err == nil, err
	})
	if err := reader.Call(t.Context(), "GET", "/api/v1/namespaces/"+ns+"/secrets", nil, nil); !refused(err) {
		t.Errorf("what the role does not name: error %v, want 403", err)
	}
	if err := s.As("nobody").Call(t.Context(), "GET", "/api/v1/namespaces", nil, nil); err == nil || !strings.Contains(err.Error(), "401") {
		t.Errorf("a token of nobody: error %v, want 401", err)
	}
}

func TestKubectlTakesTheKubeconfigs(t *testing.T) {
	s := Start(t)
	ns := s.Namespace(t)
	s.Apply(t, "apiVersion: v1\nkind: ServiceAccount\nmetadata: {name: nobody, namespace: "+ns+"}\n")
	kubectl := func(conf string) string {
		out, err := exec.CommandContext(t.Context(), Program(t, "kubectl"), "--kubeconfig="+conf, "auth", "can-i", "delete", "nodes").CombinedOutput()
		return fmt.Sprintf("%s%v", out, err)
	}
	if got := kubectl(s.Kubeconfig); !strings.HasSuffix(got, "yes\n<nil>") {
		t.Errorf("as administrator: %s", got)
	}
	if got := kubectl(s.KubeconfigFor(t, ns, "nobody")); !strings.HasSuffix(got, "no\nexit status 1") {
		t.Errorf("as an account without a role: %s", got)
	}
}

func TestAWatchSeesAChange(t *testing.T) {
	s := Start(t)
	ns := s.Namespace(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	resp, err := s.Admin().Do(ctx, "GET", "/api/v1/namespaces/"+ns+"/configmaps?watch=true", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	events := json.NewDecoder(resp.Body)
	for _, want := range []string{"ADDED one", "MODIFIED two"} {
		writeConfigMap(t, s, ns, "a", want[strings.Index(want, " ")+1:])
		var e struct {
			Type   string
			Object configMap
		}
		if err := events.Decode(&e); err != nil {
			t.Fatal(err)
		}
		if got := e.Type + " " + e.Object.Data["k"]; got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestANamespaceGoesWithItsTest(t *testing.T) {
	s := Start(t)
	var ns string
	t.Run("makes one", func(t *testing.T) {
		ns = s.Namespace(t)
		writeConfigMap(t, s, ns, "a", "one")
	})
	if err := s.Admin().Call(t.Context(), "GET", "/api/v1/namespaces/"+ns, nil, nil); !missing(err) {
		t.Errorf("the namespace afterwards: error %v, want 404", err)
	}
	if _, err := readConfigMap(t, s.Admin(), ns, "a"); !missing(err) {
		t.Errorf("what was in it: error %v, want 404", err)
	}
}

func TestAGroupIsClearedAndNothingElse(t *testing.T) {
	s := Start(t)
	ns := s.Namespace(t)
	writeConfigMap(t, s, ns, "a", "one")
	for _, scope := range []string{"Cluster", "Namespaced"} {
		kind := scope + "Thing"
		plural := strings.ToLower(kind) + "s"
		s.Apply(t, fmt.Sprintf(`
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[2]s.clear.example}
spec:
  group: clear.example
  scope: %[3]s
  names: {kind: %[1]s, plural: %[2]s}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
---
apiVersion: clear.example/v1
kind: %[1]s
metadata: {name: a, namespace: %[4]s}
`, kind, plural, scope, map[string]string{"Namespaced": ns}[scope]))
	}
	count := func(path string) int {
		t.Helper()
		var list struct{ Items []object }
		if err := s.Admin().Call(t.Context(), "GET", path, nil, &list); err != nil {
			t.Fatal(err)
		}
		return len(list.Items)
	}
	check := func(when string, cluster, namespaced int) {
		t.Helper()
		c, n := count("/apis/clear.example/v1/clusterthings"), count("/apis/clear.example/v1/namespacedthings")
		if c != cluster || n != namespaced {
			t.Errorf("%s: %d and %d things, want %d and %d", when, c, n, cluster, namespaced)
		}
	}
	check("before", 1, 1)
	s.Clear(t, "clear.example/v1", "clusterthings")
	check("after one kind", 0, 1)
	s.Clear(t, "clear.example/v1")
	check("after all", 0, 0)
	if _, err := readConfigMap(t, s.Admin(), ns, "a"); err != nil {
		t.Errorf("an object of another group: %v", err)
	}
}

func TestControllersMakeAccountsAndRemoveNamespaces(t *testing.T) {
	s := New(t, Config{ControllerManager: true})
	admin, at := s.Admin(), "/api/v1/namespaces/mine"
	s.Apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: mine}\n")
	await(t, "an account", func() (bool, error) {
		err := admin.Call(t.Context(), "GET", at+"/serviceaccounts/default", nil, nil)
		return err == nil, err
	})
	s.Namespace(t) // two that remove it do not fail
	if err := admin.Call(t.Context(), "DELETE", at, nil, nil); err != nil {
		t.Fatal(err)
	}
	await(t, "the namespace is gone", func() (bool, error) {
		err := admin.Call(t.Context(), "GET", at, nil, nil)
		return missing(err), err
	})
}

func TestNothingOutlivesATestBinaryThatIsKilled(t *testing.T) {
	need(t)
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), self)
	cmd.Env = append(os.Environ(), holdVariable+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	var dir string
	var pids [3]int
	if _, bad := fmt.Sscan(line, &dir, &pids[0], &pids[1], &pids[2]); err != nil || bad != nil {
		rest, _ := io.ReadAll(out)
		_ = cmd.Wait()
		t.Fatalf("%v, %v: %s%s", err, bad, line, rest)
	}
	defer os.RemoveAll(dir)
	if err := cmd.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	for _, pid := range pids {
		await(t, fmt.Sprint(pid, " ends"), func() (bool, error) {
			stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
			return err != nil || strings.Contains(string(stat), ") Z "), err // nobody may have reaped it yet
		})
	}
}

func TestAStatusIsAppliedAlone(t *testing.T) {
	s := Start(t)
	s.Apply(t, "apiVersion: v1\nkind: Node\nmetadata: {name: here}\n")
	s.ApplyStatus(t, "apiVersion: v1\nkind: Node\nmetadata: {name: here, labels: {a: b}}\nspec: {unschedulable: true}\nstatus: {phase: Running}\n")
	var o struct {
		Spec   struct{ Unschedulable bool }
		Status struct{ Phase string }
	}
	if err := s.Admin().Call(t.Context(), "GET", "/api/v1/nodes/here", nil, &o); err != nil || o.Status.Phase != "Running" || o.Spec.Unschedulable {
		t.Errorf("%+v, error %v", o, err)
	}
}
