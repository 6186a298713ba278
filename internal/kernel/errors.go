// Package kernel holds what all packages of kernel subsystems share: the one typed error for features this kernel lacks, and the
// registry of numbers (marks, protocols, groups, names) by which our state is told apart from that of others.
// Each kernel subsystem has its own package below this one.
package kernel

import (
	"errors"
	"fmt"
)

// UnsupportedError says that the running kernel lacks a feature. Tests that need it skip, see machinetest, and
// drivers use it to choose another way.
type UnsupportedError struct {
	Feature string // what was asked for, in words: "nftables destroy"
	Err     error  // what the kernel answered; may be nil
}

func (e *UnsupportedError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("kernel does not support %s", e.Feature)
	}
	return fmt.Sprintf("kernel does not support %s: %v", e.Feature, e.Err)
}

func (e *UnsupportedError) Unwrap() error { return e.Err }

// Is makes errors.Is(err, errors.ErrUnsupported) true.
func (e *UnsupportedError) Is(target error) bool { return target == errors.ErrUnsupported }
