package selector

import (
	"fmt"
	"unicode/utf8"
)

// Error says where a selector stopped making sense, what was expected there and
// what to write instead.
type Error struct {
	Input string
	Pos   int // offset in bytes; len(Input) at the end of the text
	Msg   string
}

// shownInput bounds how much of a long selector an error repeats.
const shownInput = 100

func (e *Error) Error() string {
	pos := min(max(e.Pos, 0), len(e.Input))
	shown := e.Input
	if len(shown) > shownInput {
		from := max(0, min(pos-shownInput/2, len(shown)-shownInput))
		shown = "…" + shown[from:from+shownInput] + "…"
	}
	return fmt.Sprintf("selector %q: character %d: %s", shown, utf8.RuneCountInString(e.Input[:pos])+1, e.Msg)
}
