package console

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

// Stream prints an answer row by row, as it comes: as json a line each, as yaml a document each.
type Stream struct {
	To   Stdio
	As   Output
	Name string // the path in a row of what -o name prints

	table *terminal.Table // of the user's own columns, with titles printed
}

// Row prints one row; text is how people see it.
func (s *Stream) Row(v any, text string) error {
	if s.As.IsTable() {
		return terminal.Fprint(s.To.Out, text)
	}
	doc, err := json.Marshal(v)
	if err != nil {
		return err
	}
	switch {
	case s.As.Format.Name == "json":
		_, err = fmt.Fprintln(s.To.Out, string(doc))
		return err
	case s.As.Custom():
		return s.columns(doc)
	case s.As.Format.Name == "yaml":
		fmt.Fprintln(s.To.Out, "---")
	}
	return s.To.Answer(s.As, Answer{Doc: json.RawMessage(doc), Name: s.Name})
}

// columns prints the user's own.
func (s *Stream) columns(doc []byte) error {
	if s.table == nil {
		s.table = terminal.NewTable(s.To.Out, s.As.Titles()...)
		s.table.AtLeast(slices.Repeat([]int{20}, len(s.As.Titles()))...) // how wide those are that come later, nobody knows
	}
	v, err := resources.Tree(doc)
	if err == nil {
		s.table.Row(s.As.Cells(v)...)
		err = s.table.More()
	}
	return err
}
