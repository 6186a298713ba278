package translate

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestTheTargetOfALiveMigrationHasWhatIsNoted: what the kubelet says of it is the source's until its agent notes it, and a
// note of anything else is not believed.
func TestTheTargetOfALiveMigrationHasWhatIsNoted(t *testing.T) {
	for _, tt := range []struct {
		name         string
		label, noted string
		want         string // addresses, or why there is no endpoint
	}{
		{"another pod", "", "", "[10.0.0.1/32]"},
		{"nothing is noted", "m", "", "is the target of a live migration that is not over"},
		{"its address is noted", "m", "10.0.0.1/32", "[10.0.0.1/32]"},
		{"somebody noted the address of another", "m", "10.0.0.2/32", "is the target of a live migration that is not over"},
	} {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p", Namespace: "n", Labels: map[string]string{LabelMigration: tt.label}, Annotations: map[string]string{AnnotationIP: tt.noted}},
			Spec:       corev1.PodSpec{NodeName: "h"},
			Status:     corev1.PodStatus{PodIP: "10.0.0.1", PodIPs: []corev1.PodIP{{IP: "10.0.0.1"}}},
		}
		if tt.noted == "" {
			p.Annotations = nil
		}
		w, err := Pod(p)
		got := NoEndpoint(p)
		if w != nil {
			got = fmt.Sprint(w.Spec.IPNetworks)
		}
		if err != nil || !strings.HasPrefix(got, tt.want) {
			t.Errorf("%s: %s, %v; want %s", tt.name, got, err, tt.want)
		}
	}
}
