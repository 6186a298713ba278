package kubetest

import (
	"io"
	"net"
	"strings"
)

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
