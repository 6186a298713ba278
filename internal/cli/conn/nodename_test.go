package conn

import (
	"os"
	"strings"
	"testing"
)

func TestAHostnameOfBlanksIsNoName(t *testing.T) {
	was := UpstreamsNameFile
	t.Cleanup(func() { UpstreamsNameFile = was })
	UpstreamsNameFile = t.TempDir() + "/nodename"
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]string{"": strings.ToLower(host), " \n": strings.ToLower(host), " Web-1 ": "web-1"} {
		t.Setenv("HOSTNAME", text)
		if got := nodeName(t.TempDir()); got != want {
			t.Errorf("with HOSTNAME=%q the node is called %q, want %q", text, got, want)
		}
	}
}
