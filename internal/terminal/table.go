package terminal

import (
	"io"
	"strings"

	"charm.land/lipgloss/v2"
)

// between stands between two columns.
const between = 2

// Table is rows whose columns stand below each other, without borders, so that grep and cut(1) can take it. Widths are those on a
// terminal: a styled cell, or one of wide characters, takes as many columns as it shows.
type Table struct {
	out    io.Writer
	rows   [][]string
	widths []int // of columns that were written, see More
}

// NewTable begins a table; no titles: it has none.
func NewTable(out io.Writer, titles ...string) *Table {
	t := &Table{out: out}
	if len(titles) > 0 {
		t.Row(titles...)
	}
	return t
}

// Row adds a row. One without cells is an empty line, after which column widths start over. The last cell of a row may have any
// length: it does not widen the column.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		if strings.ContainsAny(c, "\n\t\r") {
			cells[i] = strings.Join(strings.Fields(c), " ") // a row is a line
		}
	}
	t.rows = append(t.rows, cells)
}

// Len is the number of rows, with that of the titles.
func (t *Table) Len() int { return len(t.rows) }

// AtLeast has the first columns be so wide, for what comes later.
func (t *Table) AtLeast(widths ...int) { t.widths = widths }

// More writes the rows so far, for a table that others will follow in: columns never become narrower, so that rows that come one at a
// time stand below each other.
func (t *Table) More() error {
	if len(t.rows) == 0 {
		return nil // writing nothing waits for a reader, where out is a pipe
	}
	var b strings.Builder
	t.widths = write(&b, t.rows, t.widths)
	t.rows = nil
	return Fprint(t.out, b.String())
}

// Flush writes the table.
func (t *Table) Flush() error {
	var b strings.Builder
	for rows := t.rows; len(rows) > 0; {
		n := 0
		for n < len(rows) && len(rows[n]) > 0 {
			n++
		}
		write(&b, rows[:n], nil)
		if n < len(rows) {
			b.WriteByte('\n')
			n++
		}
		rows = rows[n:]
	}
	return Fprint(t.out, b.String())
}

// write writes rows that have common widths, which are returned: at least those that are given.
func write(b *strings.Builder, rows [][]string, widths []int) []int {
	for _, r := range rows {
		for i, c := range r[:len(r)-1] {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], width(c))
		}
	}
	for _, r := range rows {
		last := len(r) - 1
		for last > 0 && r[last] == "" {
			last--
		}
		for i, c := range r[:last] {
			b.WriteString(c)
			b.WriteString(strings.Repeat(" ", widths[i]-width(c)+between))
		}
		b.WriteString(r[last])
		b.WriteByte('\n')
	}
	return widths
}

// width is how many columns of a terminal a cell takes.
func width(cell string) int {
	for i := range len(cell) {
		if cell[i] < ' ' || cell[i] > '~' {
			return lipgloss.Width(cell)
		}
	}
	return len(cell)
}
