package manifests

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
)

// AddStrict is the flag of commands that bring resources in.
func (o *Files) AddStrict(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&o.strict, "strict", false, "a field that has no effect is an error, not only a warning (docs/fields.md lists them)")
}

// WarnFields says which fields of files have no effect. It is an error if the flags want that.
func WarnFields(c console.Stdio, ms []resources.Manifest, o Files) error {
	var wrong []error
	for _, m := range ms {
		for _, w := range m.Warnings {
			if o.strict {
				wrong = append(wrong, fmt.Errorf("%s: %w", m.File, w))
				continue
			}
			fmt.Fprintf(c.Err, "warning: %s: %s\n", m.File, w.Error())
		}
	}
	return errors.Join(wrong...)
}
