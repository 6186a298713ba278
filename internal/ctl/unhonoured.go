package ctl

import (
	"errors"
	"fmt"
	"slices"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
)

// addStrict is the flag of commands that bring resources in.
func (o *fileOptions) addStrict(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.strict, "strict", false, "a field that has no effect is an error, not only a warning (docs/fields.md lists them)")
}

// warnFields says which fields of files have no effect. It is an error if the flags want that.
func (c *command) warnFields(ms []manifest, o fileOptions) error {
	var wrong []error
	for _, m := range ms {
		for _, w := range m.Warnings {
			if o.strict {
				wrong = append(wrong, fmt.Errorf("%s: %w", m.file, w))
				continue
			}
			fmt.Fprintf(c.stdio.Err, "warning: %s: %s\n", m.file, w.Error())
		}
	}
	return errors.Join(wrong...)
}

// warnNew says which fields that have no effect are in a stored resource now and were not before.
func (c *command) warnNew(ref api.Ref, done written) {
	was, err1 := api.DecodeStored(done.was)
	now, err2 := api.DecodeStored(done.now)
	if err2 != nil {
		return
	}
	for _, p := range now.Problems {
		if !p.NoEffect || err1 == nil && slices.ContainsFunc(was.Problems, func(q api.Problem) bool { return q.Field == p.Field && q.Reason == p.Reason }) {
			continue
		}
		fmt.Fprintf(c.stdio.Err, "warning: %s: %s: %s\n", short(ref), p.Field, p.Reason)
	}
}
