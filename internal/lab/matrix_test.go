package lab

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

func TestTheMatrixHasColoursOnATerminal(t *testing.T) {
	s := Demo()
	cells := s.questions()
	for i := range cells {
		cells[i].Want, cells[i].Got = i%2 == 0, i%2 == 0
	}
	cells[0].Got = false
	for _, tt := range []struct {
		name, term string
		coloured   bool
	}{
		{"a terminal", "xterm-256color", true},
		{"a terminal that can do nothing", "dumb", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Setenv("TERM", tt.term)
			t.Setenv("NO_COLOR", "")
			tty, written := machinetest.Terminal(t, 200)
			if err := PrintMatrix(tty, &s, cells); err != nil {
				t.Fatal(err)
			}
			got := written()
			if strings.Contains(got, "\x1b[1;32m✓ yes") != tt.coloured || strings.ContainsRune(got, '\x1b') != tt.coloured {
				t.Errorf("coloured %t is not so:\n%q", tt.coloured, got)
			}
			if !strings.Contains(got, "✓ yes") || !strings.Contains(got, "no≠yes") || !strings.Contains(got, "differs") {
				t.Errorf("it lacks cells:\n%s", got)
			}
		})
	}
}
