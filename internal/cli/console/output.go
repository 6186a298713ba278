package console

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// Formats are what -o takes in every command. One whose name ends with = takes an argument after it.
var Formats = []string{"table", "wide", "json", "yaml", "name", "custom-columns=", "custom-columns-file=", "go-template=", "go-template-file=", "jsonpath="}

// aliases are older names of a table.
var aliases = []string{"ps", "text"}

// Output is the value of -o: one of [Formats], or nothing, which is a table. Its name is checked before anything is done, what is
// behind the = by Parse.
type Output struct {
	Format
	text string
}

// AddFlag adds -o to a command.
func (o *Output) AddFlag(cmd *cobra.Command) {
	cmd.Flags().VarP(o, "output", "o", orList(Formats))
	_ = cmd.RegisterFlagCompletionFunc("output", func(_ *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		return Beginning(Formats, word), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}) // it fails only where there is no such flag
}

// String is part of pflag.Value.
func (o *Output) String() string { return o.text }

// Type is part of pflag.Value: what help calls the argument.
func (*Output) Type() string { return "format" }

// Set is part of pflag.Value.
func (o *Output) Set(text string) error {
	name, _, has := strings.Cut(text, "=")
	if has {
		name += "="
	}
	if text != "" && !slices.Contains(Formats, name) && !slices.Contains(aliases, name) {
		return fmt.Errorf("want %s", orList(Formats))
	}
	o.text = text
	return nil
}

// Default is the format where nobody says another. It is one that can be read.
func (o *Output) Default(text string) { o.text = text }

// Parse reads the whole of what was given.
func (o *Output) Parse() (err error) {
	o.Format, err = ParseFormat(o.text)
	return err
}

// ParseOutput parses the -o of a command, if it has one.
func ParseOutput(cmd *cobra.Command) error {
	if f := cmd.Flags().Lookup("output"); f != nil {
		if o, ok := f.Value.(*Output); ok {
			return o.Parse()
		}
	}
	return nil
}

// IsTable reports whether people are to read it: a table, narrow or wide.
func (o *Output) IsTable() bool { return o.Format.Name == "" || o.Format.Name == "wide" }
