package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// outputFlag is the value of -o in all commands: one of some formats, or nothing. It is checked before anything is done.
type outputFlag struct {
	at      *string
	formats []string
}

// AddOutput adds -o to a command. A format whose name ends with = takes an argument after it.
func AddOutput(cmd *cobra.Command, at *string, help string, formats ...string) {
	cmd.Flags().VarP(outputFlag{at, formats}, "output", "o", help)
	_ = cmd.RegisterFlagCompletionFunc("output", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return Beginning(formats, word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}) // it fails only where there is no such flag
}

// AddOutputs adds -o with the formats that most commands have, and a help that lists them.
func AddOutputs(cmd *cobra.Command, at *string, formats ...string) {
	AddOutput(cmd, at, orList(formats), formats...)
}

func (o outputFlag) String() string {
	if o.at == nil {
		return ""
	}
	return *o.at
}

// Type is part of pflag.Value: what help calls the argument.
func (outputFlag) Type() string { return "format" }

// Set is part of pflag.Value.
func (o outputFlag) Set(text string) error {
	name, _, has := strings.Cut(text, "=")
	if has {
		name += "="
	}
	if text != "" && !slices.Contains(o.formats, name) {
		return fmt.Errorf("want %s", orList(o.formats))
	}
	*o.at = text
	return nil
}
