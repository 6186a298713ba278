package wording

import (
	"fmt"
	"io"
	"runtime/debug"

	"github.com/twillnet/twill/api"
)

// Version prints what a cluster says of itself, if it is other than last, and returns what it is now.
func Version(w io.Writer, info *api.ClusterInformation, last [2]string) (now [2]string) {
	titles := [2]string{"Cluster Version:  ", "Cluster Type:     "}
	for i, v := range [2]string{info.Spec.CalicoVersion, info.Spec.ClusterType} {
		if v == "" {
			v = "unknown"
		}
		if now[i] = v; v != last[i] {
			fmt.Fprintln(w, titles[i], v)
		}
	}
	return now
}

// Revision is that of the sources, if the build notes it.
func Revision() string {
	info, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
