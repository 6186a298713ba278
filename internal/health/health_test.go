package health

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

func get(c *Checker, path string) (int, string) {
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
	return w.Code, w.Body.String()
}

func TestAPartThatAnswersLives(t *testing.T) {
	var reasons []string
	c := New(func() []string { return reasons })
	c.Part("calc", time.Minute, func(context.Context) error { return nil })
	if code, body := get(c, "/liveness"); code != 200 || body != "live\n" {
		t.Errorf("got %d %q", code, body)
	}
	if code, body := get(c, "/readiness"); code != 200 || body != "ready\n" {
		t.Errorf("got %d %q", code, body)
	}
	reasons = []string{"not in sync with the datastore", "nft: no such file"}
	if code, body := get(c, "/readiness"); code != 503 || body != "not in sync with the datastore\nnft: no such file\n" {
		t.Errorf("got %d %q", code, body)
	}
	if code, _ := get(c, "/liveness"); code != 200 {
		t.Error("what is not ready does not live")
	}
}

func TestSettingsSayHowLongAPartMayBeBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		c := New(func() []string { return nil })
		c.Part("calc", time.Minute, func(context.Context) error { return <-release })
		if code, _ := get(c, "/liveness"); code != 200 {
			t.Error("it has only just been asked")
		}
		for _, step := range []struct {
			patience time.Duration
			code     int
		}{{0, 200}, {10 * time.Second, 503}, {0, 200}} {
			<-time.After(15 * time.Second)
			c.Patience("calc", step.patience)
			if code, body := get(c, "/liveness"); code != step.code {
				t.Errorf("with patience %s: got %d %q, want %d", step.patience, code, body, step.code)
			}
		}
		release <- nil
	})
}

func TestABusyPartLivesAndOneThatHangsDoesNot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan error)
		asked := 0
		c := New(func() []string { return nil })
		c.Part("dataplane", 90*time.Second, func(context.Context) error { asked++; return <-release })
		for _, want := range []struct {
			after time.Duration
			code  int
		}{{0, 200}, {60 * time.Second, 200}, {40 * time.Second, 503}} {
			<-time.After(want.after)
			if code, body := get(c, "/liveness"); code != want.code {
				t.Errorf("after %s: got %d %q, want %d", want.after, code, body, want.code)
			}
		}
		synctest.Wait() // who counts has counted
		if asked != 1 {
			t.Errorf("asked %d times while an answer was awaited", asked)
		}
		release <- nil
		synctest.Wait()
		if code, body := get(c, "/liveness"); code != 200 {
			t.Errorf("it has come back: got %d %q", code, body)
		}
		if code, _ := get(c, "/liveness"); code != 200 {
			t.Error("it has only just been asked again")
		}
		release <- errors.New("ended")
		synctest.Wait()
		if code, body := get(c, "/liveness"); code != 503 || body != "dataplane: ended\n" {
			t.Errorf("got %d %q", code, body)
		}
	})
}
