package kubetest

import (
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
)

// KubeconfigAt writes an administrator's kubeconfig for who reaches the server at another HOST:PORT, and returns its path. It goes with the test.
func (s *Server) KubeconfigAt(t testing.TB, address string) string {
	t.Helper()
	file := t.TempDir() + "/kubeconfig"
	if err := s.writeKubeconfigAt(file, fmt.Sprintf("server: %q, tls-server-name: kubernetes", "https://"+address), s.token); err != nil {
		t.Fatal(err)
	}
	return file
}

// Forward passes connections to a listener on to the API server until the listener is closed. With one at the server's own address in
// another network namespace, its kubeconfigs are good there, too.
func (s *Server) Forward(l net.Listener) {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer in.Close()
			out, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "https://"))
			if err != nil {
				return
			}
			defer out.Close()
			go func() {
				_, _ = io.Copy(out, in)
				_ = out.(*net.TCPConn).CloseWrite()
			}()
			_, _ = io.Copy(in, out)
		}()
	}
}
