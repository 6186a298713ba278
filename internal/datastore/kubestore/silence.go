package kubestore

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// A connection on which nothing came for pingAfter is asked for a sign of life, HTTP/2's ping, and is given up when none came for pingWait. A
// network that loses what the server sends closes nothing, and client-go's own 30 s and 15 s, with a request after that, are more than a minute.
// Once the network is well again TCP waits for as long as it lost: what the server sent and nobody had in the first 6 s, it sends
// again up to 6 s later, which is why a connection is given up about then.
const (
	pingAfter = 3 * time.Second
	pingWait  = 5 * time.Second
)

// dialWait bounds how long a new connection is waited for. Linux asks once a second at first, and then ever more seldom: who dials again is
// answered sooner by a server that is back.
const dialWait = 4 * time.Second

// resendWithin bounds how long TCP waits until it sends again what was not acknowledged. Kernels before 6.15 do not know the option, and wait up to two minutes.
const resendWithin = time.Second

// rtoMax is TCP_RTO_MAX_MS of linux/tcp.h.
const rtoMax = 44

// changing is held while a transport is changed, which clients of one server have in common.
var changing sync.Mutex

// impatient has the connections of a transport asked for signs of life, and little time to come about. What speaks no HTTP/2, such as a server without TLS, is not asked.
func impatient(rt http.RoundTripper) http.RoundTripper {
	inner := rt
	for {
		w, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		inner = w.WrappedRoundTripper()
	}
	if t, ok := inner.(*http.Transport); ok && inner != http.DefaultTransport {
		changing.Lock()
		defer changing.Unlock()
		if t.HTTP2 == nil {
			t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait}
			t.DialContext = soon(t.DialContext)
		}
	}
	return rt
}

// dialer is what a transport connects by.
type dialer func(ctx context.Context, network, address string) (net.Conn, error)

// soon is a dialer that gives up after dialWait, and whose connections send again within resendWithin what was lost.
func soon(dial dialer) dialer {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, dialWait)
		defer cancel()
		c, err := dial(ctx, network, address)
		if tcp, ok := c.(*net.TCPConn); ok {
			if raw, rawErr := tcp.SyscallConn(); rawErr == nil {
				_ = raw.Control(func(fd uintptr) { // the kernel's own bound does, too
					_ = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, rtoMax, int(resendWithin/time.Millisecond))
				})
			}
		}
		return c, err
	}
}

// stream begins a watch. Its first answer, that it has begun, is waited for as long as for that of any request.
func (s *Store) stream(ctx context.Context, k form.Kind, namespace string, params map[string]string) (io.ReadCloser, error) {
	accept := mediaJSON
	if protobuf(k) {
		accept = strings.Split(k.Accept(), ",")[0] + ";stream=watch"
	}
	life, end := context.WithCancelCause(ctx)
	silent := fmt.Errorf("no watch of %s began within %s", k.ID(), s.timeout())
	waiting := time.AfterFunc(s.timeout(), func() { end(silent) })
	body, err := withParams(s.client.Get().AbsPath(pathOf(k, namespace, "", "")), params).SetHeader("Accept", accept).Stream(life)
	if inTime := waiting.Stop(); !inTime && err == nil {
		_ = body.Close() // it was only read
		err = silent
	}
	if err != nil {
		end(nil)
		return nil, translate(ctx, err)
	}
	return stream{body, end}, nil
}

// stream is a watch that has begun.
type stream struct {
	io.ReadCloser
	end context.CancelCauseFunc
}

// Close ends it.
func (s stream) Close() error {
	s.end(nil)
	return s.ReadCloser.Close()
}
