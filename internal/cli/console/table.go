package console

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// Table is rows whose columns stand below each other. Lipgloss's table draws borders and cuts at the width of the terminal, which
// neither grep nor cut(1) can take.
type Table struct{ w *tabwriter.Writer }

// NewTable begins a table; no titles: it has none.
func NewTable(out io.Writer, titles ...string) *Table {
	t := &Table{tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)}
	if len(titles) > 0 {
		t.Row(titles...)
	}
	return t
}

// Row adds a row.
func (t *Table) Row(cells ...string) { fmt.Fprintln(t.w, strings.Join(cells, "\t")) }

// Flush writes the table.
func (t *Table) Flush() error { return t.w.Flush() }
