package kubemirror_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kubemirror"
	"github.com/twillnet/twill/internal/translate"
)

func (b *bench) wantMark(what string, want bool) {
	b.Helper()
	_, err := b.to.Get(b.Context(), translate.KeyLabelsAreCopied)
	if has := err == nil; has != want || err != nil && !errors.Is(err, datastore.ErrNotFound) {
		b.Errorf("%s: the datastore says that labels are copied: %v (%v)", what, has, err)
	}
}

// TestTheDatastoreSaysWhetherLabelsAreCopied: for as long as the settings say that they are, whatever becomes of the datastore.
func TestTheDatastoreSaysWhetherLabelsAreCopied(t *testing.T) {
	run(t, kubemirror.Config{}, nil, nil, func(b *bench) {
		b.holds("copied")
		b.wantMark("copied", true)
		if err := b.to.Delete(b.Context(), translate.KeyLabelsAreCopied, api.Revision{}); err != nil {
			b.Fatal(err)
		}
		<-time.After(6 * time.Minute) // virtual
		b.wantMark("lost, and looked at again", true)
	})
	for name, controllers := range map[string][]string{"others are": {kubemirror.Policies}, "none is": {}} {
		run(t, kubemirror.Config{Controllers: controllers}, nil, nil, func(b *bench) {
			if err := datastore.Put(b.Context(), b.to, api.Update{Key: translate.KeyLabelsAreCopied, Value: []byte("{}")}); err != nil {
				b.Fatal(err)
			}
			<-time.After(6 * time.Minute) // virtual
			b.wantMark(name, false)
		})
	}
}

// TestAnEndpointNoLongerWaitsWhenItHasItsLabels: also one of a pod that has nothing to add.
func TestAnEndpointNoLongerWaitsWhenItHasItsLabels(t *testing.T) {
	const note = `"metadata":{"annotations":{"twill.net/awaits-labels":"c1","twill.net/cni-network":"net"},`
	waits := func(endpoint string) string { return strings.Replace(endpoint, `"metadata":{`, note, 1) }
	done := func(endpoint string) string {
		return strings.Replace(endpoint, `"metadata":{`, `"metadata":{"annotations":{"twill.net/cni-network":"net"},`, 1)
	}
	for name, tt := range map[string]struct{ pod, endpoint, want string }{
		"labels":         {labelledWep("a", "eth0", `{"app":"1"}`, podSays), wep("a", plugins), labelledWep("a", "eth0", `{"app":"1"}`, kept)},
		"nothing to add": {wep("a", podSays), wep("a", kept), wep("a", kept)},
	} {
		run(t, kubemirror.Config{}, []string{tt.pod}, nil, func(b *bench) {
			put(t, b.to, waits(tt.endpoint))
			b.holds(name, done(tt.want))
			remove(t, b.from, "workloadendpoints/shop/n1-k8s-a-eth0")
			put(t, b.to, waits(tt.endpoint))
			b.holds("the pod is gone", waits(tt.endpoint))
		})
	}
}

// TestTheMarkStaysWhileTheDatastoreIsLocked: whoever moves it would not have the change.
func TestTheMarkStaysWhileTheDatastoreIsLocked(t *testing.T) {
	run(t, kubemirror.Config{Controllers: []string{}}, nil, nil, func(b *bench) {
		info := api.KeyPrefix(api.KindClusterInformation, "") + "default"
		for _, step := range []struct {
			name, value string
			mark        bool
		}{
			{"locked", `{"spec":{"datastoreReady":false}}`, true},
			{"and ready again", `{"spec":{"datastoreReady":true}}`, false},
		} {
			for _, u := range []api.Update{{Key: info, Value: []byte(step.value)}, {Key: translate.KeyLabelsAreCopied, Value: []byte("{}")}} {
				if err := datastore.Put(b.Context(), b.to, u); err != nil {
					b.Fatal(err)
				}
			}
			<-time.After(6 * time.Minute) // virtual
			b.wantMark(step.name, step.mark)
		}
	})
}
