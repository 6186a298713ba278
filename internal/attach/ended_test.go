package attach

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/attach/wire"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/translate"
)

// TestHowAnAttachmentEndedIsReported, of pods: why one failed, and whether the pod still says that it did.
func TestHowAnAttachmentEndedIsReported(t *testing.T) {
	for _, tt := range []struct {
		name    string
		request wire.Request
		has     map[string]string // annotations
		kernel  func(*kernel)
		want    string // begins so; empty: nothing is reported
	}{
		{"attached", ofPod("c1", "web"), nil, nil, "prod/web false <nil>"},
		{"attached after it failed", ofPod("c1", "web"), map[string]string{translate.AnnotationSetupFailed: "true"}, nil, "prod/web true <nil>"},
		{"a wrong annotation", ofPod("c1", "web"), on("hwAddr", "x"), nil, "prod/web false annotation cni.projectcalico.org/hwAddr of pod prod/web"},
		{"not in force", ofPod("c1", "web"), nil, func(k *kernel) { k.inForce = errors.New("the kernel is full") }, "prod/web false the kernel is full"},
		{"not ready", ofPod("c1", "web"), nil, func(k *kernel) { k.unready = []string{"never yet in sync"} }, "prod/web false the agent is not ready: never yet in sync"},
		{"no pod", request("c1"), nil, nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := newBed(t)
			if tt.kernel != nil {
				tt.kernel(b.kernel)
			}
			s := b.on(deriving{has: &datastore.Annotations{Pod: tt.has}})
			var got []string
			s.cfg.Ended = func(of wire.Pod, reported bool, err error) {
				got = append(got, fmt.Sprintf("%s/%s %v %v", of.Namespace, of.Name, reported, err))
			}
			_, err := s.Attach(t.Context(), tt.request)
			all := strings.Join(got, "; ")
			if (tt.want == "") != (all == "") || !strings.HasPrefix(all, tt.want) || len(got) > 1 {
				t.Errorf("reported %q, want %q; Attach: %v", all, tt.want, err)
			}
		})
	}
}
