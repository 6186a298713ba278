package kubestore

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// A connection on which nothing came for pingAfter is asked for a sign of life, HTTP/2's ping, and is given up when none came for pingWait. A
// network that loses what the server sends closes nothing, and client-go's own 30 s and 15 s, with a request after that, are more than a minute.
const (
	pingAfter = 5 * time.Second
	pingWait  = 10 * time.Second
)

// asking is held while a transport is changed, which clients of one server have in common.
var asking sync.Mutex

// askedForLife has the connections of a transport asked for signs of life. What speaks no HTTP/2, such as a server without TLS, is not asked.
func askedForLife(rt http.RoundTripper) http.RoundTripper {
	inner := rt
	for {
		w, ok := inner.(utilnet.RoundTripperWrapper)
		if !ok {
			break
		}
		inner = w.WrappedRoundTripper()
	}
	if t, ok := inner.(*http.Transport); ok && inner != http.DefaultTransport {
		asking.Lock()
		defer asking.Unlock()
		if t.HTTP2 == nil {
			t.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingWait}
		}
	}
	return rt
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
