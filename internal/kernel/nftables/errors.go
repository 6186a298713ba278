package nftables

import (
	"errors"
	"fmt"
	"strings"
)

// ErrOutcomeUnknown: the kernel's answer to a batch was lost, and someone else changed the ruleset at the same time, so
// that it is unknown whether the batch was applied. Read the table back.
var ErrOutcomeUnknown = errors.New("nftables: answer lost, outcome of the transaction unknown")

// ErrInterrupted: the ruleset changed during each of several attempts to read it.
var ErrInterrupted = errors.New("nftables: ruleset kept changing while it was read")

// BatchError lists the operations of a batch that failed; nothing of the batch was applied.
type BatchError struct{ Ops []OpError }

// OpError is one operation that failed.
type OpError struct {
	Op     string // "add rule in chain twill/fw"
	Index  int    // of the message in the batch; -1 for the transaction as a whole
	Err    error  // the errno
	Detail string // the kernel's extended ack, or the element that failed
	Offset uint32 // of the attribute that it disliked, within the message; zero: it did not say
}

func (o OpError) Error() string {
	s := o.Op + ": " + o.Err.Error()
	if o.Detail != "" {
		s += " (" + o.Detail + ")"
	}
	return s
}

// Unwrap returns the errno.
func (o OpError) Unwrap() error { return o.Err }

func (e *BatchError) Error() string {
	const shown = 5
	var b strings.Builder
	b.WriteString("nftables: ")
	for i, o := range e.Ops {
		if i == shown {
			fmt.Fprintf(&b, "; and %d more", len(e.Ops)-shown)
			break
		}
		if i > 0 {
			b.WriteString("; ")
		}
		b.WriteString(o.Error())
	}
	return b.String()
}

// Unwrap makes errors.Is find each errno.
func (e *BatchError) Unwrap() []error {
	errs := make([]error, len(e.Ops))
	for i, o := range e.Ops {
		errs[i] = o
	}
	return errs
}

// GenerationError: the ruleset was no longer of the generation that the batch asked for. Nothing was applied.
type GenerationError struct {
	Want uint32
	Err  error // ERESTART
}

func (e *GenerationError) Error() string {
	return fmt.Sprintf("nftables: ruleset is no longer of generation %d", e.Want)
}

func (e *GenerationError) Unwrap() error { return e.Err }
