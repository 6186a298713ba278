package clustercheck

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// TestOneTry against what answers, and what does not.
func TestOneTry(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("b-1")) }))
	defer server.Close()
	web := strings.TrimPrefix(server.URL, "http://")
	udp, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer udp.Close()
	go echo(udp)
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.Close()
	for _, tt := range []struct {
		to, answer, err string
	}{
		{"tcp://" + web, "b-1", ""},
		{"open://" + web, "", ""},
		{"udp://" + udp.LocalAddr().String(), "twill", ""},
		{"whole://" + udp.LocalAddr().String(), "65535 bytes", ""}, // loopback takes 65,536, and IP has no packet as large
		{"dns:localhost", "127.0.0.1", ""},
		{"tcp://" + gone.Addr().String(), "", "refused"},
		{"open://" + gone.Addr().String(), "", "refused"},
		{"udp://" + gone.Addr().String(), "", "refused"},
		{"whole://somewhere:1", "", "somewhere"},
		{"ftp://" + web, "", "unknown"},
		{web, "", "unknown"},
	} {
		done := Try{To: tt.to}.do(t.Context(), time.Minute)
		if !strings.Contains(done.Answer, tt.answer) || done.As != (tt.err == "") || !strings.Contains(done.Error, tt.err) {
			t.Errorf("%s: %+v, want answer %q, error %q", tt.to, done, tt.answer, tt.err)
		}
		silent := Try{To: tt.to, Silent: true}.do(t.Context(), time.Minute)
		if silent.As != (tt.err != "") {
			t.Errorf("%s should be silent: %+v", tt.to, silent)
		}
	}
}

// TestATryIsMadeUntilItIsAsItShould: a server that comes late, and one that goes late.
func TestATryIsMadeUntilItIsAsItShould(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := "open://" + l.Addr().String()
	until := func(silent bool) chan Tried {
		done := make(chan Tried, 1)
		go func() {
			done <- Try{To: at, Silent: silent, Within: time.Minute}.do(t.Context(), time.Minute)
		}()
		return done
	}
	done := until(true)
	if c, err := l.Accept(); err != nil { // it was tried once
		t.Fatal(err)
	} else {
		c.Close()
	}
	l.Close()
	if d := <-done; !d.As || d.After <= 0 {
		t.Errorf("it has gone: %+v", d)
	}
	done = until(false)
	again, err := net.Listen("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if d := <-done; !d.As || d.Error != "" {
		t.Errorf("it is there: %+v", d)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("the user has enough"))
	if d := (Try{To: at, Silent: true, Within: time.Hour}).Do(ctx); d.Took > time.Minute {
		t.Errorf("it went on: %+v", d)
	}
}
