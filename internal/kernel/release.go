package kernel

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// AtLeast reports whether the kernel that runs has this version, or a later one.
func AtLeast(major, minor int) bool {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(u.Release[:]), major, minor)
}

// atLeast compares the first two numbers of a release, such as 6.1.0-18-cloud-amd64. One that cannot be read is old.
func atLeast(release string, major, minor int) bool {
	var a, b int
	if n, _ := fmt.Sscanf(release, "%d.%d", &a, &b); n != 2 {
		return false
	}
	return a > major || a == major && b >= minor
}
