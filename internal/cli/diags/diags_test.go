package diags

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// unpack returns the files of an archive.
func unpack(t *testing.T, archive io.Reader) map[string]string {
	t.Helper()
	z, err := gzip.NewReader(archive)
	if err != nil {
		t.Fatal(err)
	}
	files, r := map[string]string{}, tar.NewReader(z)
	for {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil || h.Mode != 0o600 {
			t.Errorf("%s has mode %o, %v", h.Name, h.Mode, err)
		}
		files[h.Name] = string(content)
	}
}

func file(t *testing.T, name, content string, mode os.FileMode) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(content), mode); err != nil {
		t.Fatal(err)
	}
	return name
}

// TestAnArchiveHasWhatIsThereAndNamesWhatIsNot collects of programs, files, and a socket, of which some fail, each in its way.
func TestAnArchiveHasWhatIsThereAndNamesWhatIsNot(t *testing.T) {
	dir := t.TempDir()
	exe := file(t, filepath.Join(dir, "calicoctl"), "#!/bin/sh\necho \"$@\"; echo to stderr >&2; test \"$1\" != fails\n", 0o700)
	socket := filepath.Join(dir, "agent.sock")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "served "+r.URL.Path) })}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	file(t, filepath.Join(dir, "logs", "a.log"), "log a", 0o600)
	file(t, filepath.Join(dir, "logs", "b.log"), "log b", 0o600)
	if err := os.Mkdir(filepath.Join(dir, "logs", "c.log"), 0o700); err != nil {
		t.Fatal(err)
	}
	var archive, progress bytes.Buffer
	c := collector{exe: exe, flags: []string{"--context=x"}, socket: socket, progress: &progress, within: time.Minute}
	parts, err := c.archive(t.Context(), &archive, "top", []source{
		{name: "own.txt", args: []string{twill, "status"}},
		{name: "fails.txt", args: []string{twill, "fails"}},
		{name: "needs.txt", args: []string{twill, "status"}, needs: "fails.txt"},
		{name: "has.txt", args: []string{twill, "status"}, needs: "own.txt"},
		{name: "missing.txt", args: []string{"no-such-program-anywhere"}},
		{name: "metrics.txt", ask: "/metrics"},
		{name: "logs", glob: filepath.Join(dir, "logs", "*.log")},
		{name: "proc", glob: "/proc/loadavg"},
		{name: "nothing", glob: "/no/such/file*"},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := unpack(t, &archive)
	for name, want := range map[string]string{
		"own.txt": "status --context=x\nto stderr\n", "fails.txt": "fails --context=x\nto stderr\n", "has.txt": "status --context=x\nto stderr\n", "metrics.txt": "served /metrics",
		"logs" + dir + "/logs/a.log": "log a", "logs" + dir + "/logs/b.log": "log b",
	} {
		if got["top/"+name] != want {
			t.Errorf("%s is %q, want %q", name, got["top/"+name], want)
		}
	}
	if got["top/proc/proc/loadavg"] == "" {
		t.Error("a file that says it has no bytes is empty")
	}
	if len(got) != 8 { // these, and the index
		t.Errorf("there are %d files", len(got))
	}
	index := got["top/index.txt"]
	for file, want := range map[string]string{
		"own.txt": "ok", "fails.txt": "exit code 1", "needs.txt": "left out, since fails.txt could not be had", "missing.txt": "this host does not have the program", "metrics.txt": "ok",
	} {
		if !has(index, file, want) || !strings.Contains(progress.String(), file+": "+want+"\n") {
			t.Errorf("%s is not %q in the index or on the way:\n%s\n%s", file, want, index, &progress)
		}
	}
	if len(parts) != 9 {
		t.Errorf("there are %d parts: %+v", len(parts), parts)
	}
}

// has reports whether a table has a row that begins with one word and ends with some.
func has(table, first, last string) bool {
	for line := range strings.Lines(table) {
		if strings.HasPrefix(line, first+" ") && strings.HasSuffix(strings.TrimSpace(line), last) {
			return true
		}
	}
	return false
}

func TestWhatHangsIsLeft(t *testing.T) {
	c := collector{progress: io.Discard, within: time.Millisecond}
	found := c.read(t.Context(), source{name: "hangs.txt", args: []string{"sleep", "1000"}}, nil)
	if len(found) != 1 || found[0].err == nil || !strings.Contains(found[0].err.Error(), "did not end within") {
		t.Errorf("got %+v", found)
	}
}

func TestWhatIsLongIsCutAndSaysSo(t *testing.T) {
	name := file(t, filepath.Join(t.TempDir(), "long"), strings.Repeat("x", 90)+"the end", 0o600)
	content, err := readTail(name, 10)
	if string(content) != "xxxthe end" || err == nil || !strings.Contains(err.Error(), "the first 87 bytes") {
		t.Errorf("%q, %v", content, err)
	}
	l := limited{}
	for range 3 {
		if n, err := l.Write(make([]byte, longest/2)); n != longest/2 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
	}
	if l.Len() != longest || l.lost != longest/2 {
		t.Errorf("it has %d bytes, and lost %d", l.Len(), l.lost)
	}
}

// TestNoArchiveIsLeftHalf ends the collection: there is neither the archive nor a part of it.
func TestNoArchiveIsLeftHalf(t *testing.T) {
	dir := t.TempDir()
	ctx, end := context.WithCancel(t.Context())
	end()
	c := collector{progress: io.Discard, within: time.Minute}
	if _, err := write(ctx, c, filepath.Join(dir, "a.tar.gz"), "top", []source{{name: "a", glob: "/proc/loadavg"}}); err == nil {
		t.Error("it was written")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("there are %v, %v", left, err)
	}
	w, err := write(t.Context(), c, filepath.Join(dir, "a.tar.gz"), "top", []source{{name: "a", glob: "/proc/loadavg"}})
	info, statErr := os.Stat(filepath.Join(dir, "a.tar.gz"))
	if err != nil || statErr != nil || info.Mode() != 0o600 || info.Size() != w.Bytes || len(w.Parts) != 1 {
		t.Errorf("%+v, %v, %v", w, err, statErr)
	}
}

// TestNoSecretIsInTheArchive plants secrets in the forms in which programs print them and files have them.
func TestNoSecretIsInTheArchive(t *testing.T) {
	dir := t.TempDir()
	const s = "hunter2"
	jwt := "eyJhbGciOiJSUzI1NiJ9." + base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"hunter2"}`)) + ".c2lnbmF0dXJlaHVudGVyMg"
	pem := "-----BEGIN EC PRIVATE KEY-----\nMHcCAQEEI" + s + "\n-----END EC PRIVATE KEY-----"
	planted := map[string]string{
		"environment":         "ETCD_PASSWORD=" + s + "\nexport FELIX_ETCDPASSWORD='" + s + " and more'",
		"settings":            "[global]\netcdPassword = " + s + "\nEtcdPassword: \"" + s + " two\"",
		"json":                `{"password":"` + s + ` \" more ` + s + `","serviceToken" : "` + s + `","clientSecret":'` + s + `'}`,
		"yaml":                "spec:\n  password: " + s + "\n  bgp_passwd: '" + s + "'\n",
		"a block of yaml":     "spec:\n  password: |\n    " + s + "\n    more " + s + "\nnext: word",
		"bird":                "protocol bgp p {\n  password \"" + s + " with words\";\n}",
		"arguments":           "root 1 twill agent --etcd-password " + s + " --token=" + s,
		"url":                 "endpoints=https://root:" + s + "@192.0.2.1:2379",
		"a header":            "Authorization: Bearer " + s + "\nauthorization: Basic " + base64.StdEncoding.EncodeToString([]byte("root:"+s)),
		"a token":             "kubelet says " + jwt,
		"a key":               "before\n" + pem + "\nafter",
		"a key without end":   "before\n-----BEGIN PRIVATE KEY-----\n" + s,
		"the end of a key":    s + "\n-----END PRIVATE KEY-----\nafter",
		"wireguard":           "  private key: " + s + "=\nPresharedKey = " + s + "=",
		"a value by itself":   "the agent logs known-value-of-a-file and known+value/here",
		"... encoded":         "GET /?p=known%2Bvalue%2Fhere",
		"kubeconfig":          "client-key-data: " + base64.StdEncoding.EncodeToString([]byte(pem)),
		"after an assignment": "secret: {" + "password: " + s + "}",
	}
	file(t, filepath.Join(dir, "secrets", "bgp", "tor"), "known-value-of-a-file\n", 0o600)
	file(t, filepath.Join(dir, "node.env"), "NODENAME=h1\nETCD_PASSWORD=\"known+value/here\"\nX_TOKEN=abc\n", 0o600)
	c := collector{progress: io.Discard, within: time.Minute, secrets: knownSecrets([]string{"HOME=/root", "A_SECRET="}, []string{filepath.Join(dir, "*.env")}, filepath.Join(dir, "secrets"), "/no/such/dir")}
	var all []source
	for name, content := range planted {
		file(t, filepath.Join(dir, "planted", name), content, 0o600)
	}
	all = append(all, source{name: "files", glob: filepath.Join(dir, "planted", "*")}, source{name: "x.txt", args: []string{"cat", filepath.Join(dir, "planted", "environment"), "/no/known-value-of-a-file"}})
	var archive bytes.Buffer
	if _, err := c.archive(t.Context(), &archive, "top", all); err != nil {
		t.Fatal(err)
	}
	got := unpack(t, &archive)
	if len(got) != len(planted)+2 {
		t.Errorf("there are %d files", len(got))
	}
	encoded := base64.StdEncoding.EncodeToString([]byte("root:" + s))
	for name, text := range got {
		for _, bad := range []string{s, encoded, jwt, "MHcCAQEEI", "known-value", "known+value", "known%2Bvalue", "LS0tLS1"} {
			if strings.Contains(text, bad) {
				t.Errorf("%s has %q:\n%s", name, bad, text)
			}
		}
	}
	for name, want := range map[string]string{
		"a key": "before\n(hidden)\nafter", "a block of yaml": "next: word", "bird": "protocol bgp p {\n  password (hidden);\n}", "arguments": "root 1 twill agent --etcd-password (hidden)",
		"url": "https://(hidden)192.0.2.1:2379",
	} {
		if text := got["top/files"+dir+"/planted/"+name]; !strings.Contains(text, want) {
			t.Errorf("%s is %q, want %q in it", name, text, want)
		}
	}
}

func TestWhatIsNoSecretStays(t *testing.T) {
	for _, text := range []string{
		"etcdKeyFile = /etc/key.pem", "secretsDir: /etc/twill/secrets", "policy default/tokens allows tcp:443", "a key: value", "set ip saddr 10.0.0.1 counter packets 7",
		"https://192.0.2.1:2379/v3", "password:\n  secretKeyRef: {name: bgp, key: tor}", "felix_active_local_endpoints{state=\"up\"} 3", "ssh-agent: no tokens",
	} {
		if got := string(secrets{}.hide([]byte(text))); got != text {
			t.Errorf("%q became %q", text, got)
		}
	}
}
