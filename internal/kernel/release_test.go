package kernel

import "testing"

func TestReleasesOfKernels(t *testing.T) {
	for _, tt := range []struct {
		release string
		want    bool
	}{{"5.7", true}, {"5.7.0-rc1", true}, {"5.10.0-30-amd64", true}, {"6.1.0-18-cloud-amd64", true}, {"5.6.19", false}, {"4.18.0-553.el8.x86_64", false}, {"5", false}, {"", false}, {"x.y", false}} {
		if got := atLeast(tt.release, 5, 7); got != tt.want {
			t.Errorf("%q is at least 5.7: %t, want %t", tt.release, got, tt.want)
		}
	}
	if !AtLeast(1, 0) || AtLeast(1<<20, 0) {
		t.Error("the kernel that runs has no version")
	}
}
