package attach

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/translate"
)

const podsKey = api.ResourcesPrefix + "workloadendpoints/prod/h1-k8s-web-eth0"

// copying says in the store that labels of pods are copied there.
func (b *bed) copying() {
	b.Helper()
	b.must(datastore.Put(b.Context(), b.store.InMemory, api.Update{Key: translate.KeyLabelsAreCopied, Value: []byte("{}")}))
}

// label does what kubemirror does, once there is an endpoint: its labels, with one by which policy may select it, in the write that ends the wait.
func (b *bed) label(also func(u api.Update) api.Update) {
	for {
		u, err := b.store.InMemory.Get(b.Context(), podsKey)
		if err != nil {
			select {
			case <-time.After(time.Millisecond): // virtual
				continue
			case <-b.Context().Done():
				return
			}
		}
		u = also(u)
		u.Value = bytes.Replace(u.Value, []byte(`"`+translate.AnnotationAwaitsLabels+`":"c1"`), []byte(`"x":"y"`), 1)
		if _, err := b.store.InMemory.Update(b.Context(), u); err != nil {
			b.Error(err)
		}
		return
	}
}

// TestAPodWaitsForItsLabelsWhereTheyAreCopied: when ADD returns, what is in force is the endpoint with its labels, and never was it without.
func TestAPodWaitsForItsLabelsWhereTheyAreCopied(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t)
		b.copying()
		b.kernel.onForced = func() {
			if got := b.kernel.received[podsKey]; !strings.Contains(got, `"app":"shop"`) || strings.Contains(got, translate.AnnotationAwaitsLabels) {
				t.Errorf("calc has %s", got)
			}
		}
		go b.label(func(u api.Update) api.Update {
			u.Value = bytes.Replace(u.Value, []byte(`"app":"web"`), []byte(`"app":"shop"`), 1)
			return u
		})
		_, err := b.Attach(t.Context(), ofPod("c1", "web"))
		b.must(err)
		if len(b.kernel.asked) != 1 {
			t.Errorf("what is in force was asked for %v", b.kernel.asked)
		}
	})
}

// TestAPodThatGetsNoLabelsIsNotAttached: nor one whose endpoint becomes another's meanwhile; and nothing of it is left.
func TestAPodThatGetsNoLabelsIsNotAttached(t *testing.T) {
	for name, tt := range map[string]struct {
		meanwhile func(*bed)
		why       string
		later     bool
		left      int
	}{
		"nobody writes them": {func(*bed) {}, "have not come from Kubernetes within 10s", true, 0},
		"the endpoint is deleted": {func(b *bed) {
			for b.store.Delete(b.Context(), podsKey, api.Revision{}) != nil {
				<-time.After(time.Millisecond)
			}
		}, "was deleted while it was attached", true, 0},
		"another container has the endpoint": {func(b *bed) {
			b.label(func(u api.Update) api.Update {
				u.Value = bytes.Replace(u.Value, []byte(`"containerID":"c1"`), []byte(`"containerID":"c2"`), 1)
				return u
			})
		}, "another container's", false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				b.copying()
				b.known.Store(podsKey, true)
				go tt.meanwhile(b)
				_, err := b.Attach(t.Context(), ofPod("c1", "web"))
				var refusal *wire.Refusal
				if err == nil || !strings.Contains(err.Error(), tt.why) || errors.As(err, &refusal) != tt.later || tt.later && !refusal.Later {
					t.Errorf("got %v", err)
				}
				if left := b.left(); len(left) != tt.left {
					t.Errorf("there is still %v", left)
				}
			})
		})
	}
}

// TestWhoNeedNotWaitDoesNot: a container that is no pod's, and a pod where nobody copies labels.
func TestWhoNeedNotWaitDoesNot(t *testing.T) {
	for name, tt := range map[string]struct {
		copied  bool
		request wire.Request
	}{"no pod": {true, request("c1")}, "nobody copies": {false, ofPod("c1", "web")}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := newBed(t)
				if tt.copied {
					b.copying()
				}
				begin := time.Now()
				_, err := b.Attach(t.Context(), tt.request)
				b.must(err)
				if d := time.Since(begin); d > labelsLook {
					t.Errorf("it took %s", d)
				}
				for _, value := range b.kernel.received {
					if strings.Contains(value, translate.AnnotationAwaitsLabels) {
						t.Errorf("calc has %s", value)
					}
				}
			})
		})
	}
}
