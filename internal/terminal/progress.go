package terminal

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/term"
)

const (
	quiet     = time.Second            // work that ends before this says nothing
	frame     = 100 * time.Millisecond // between two pictures of a bar
	lineEvery = 10 * time.Second       // between two lines where there is no terminal
	barWidth  = 30
	barLeast  = 10 // a bar that would be narrower is left out

	// eraseLine puts the cursor at the beginning of its line, and empties that (ECMA-48 EL 2).
	eraseLine = "\r\x1b[2K"
)

// Progress says how far work is that takes longer than a second: on a terminal in one line at the bottom, with a bar if it is known
// how much there is to do, and elsewhere in a line every ten seconds. Its methods may be called from several goroutines.
type Progress struct {
	out   io.Writer
	tty   bool
	total int
	what  string
	began time.Time
	ended chan struct{}
	loop  sync.WaitGroup

	mu    sync.Mutex // the lines of the terminal, and what is below
	done  int
	now   string
	shown bool // the cursor is behind the bar
	open  bool // behind what somebody else wrote, without the end of its line
}

// Begin says on out how far work is, until [Progress.End]. With a total what is a participle: 3 of 10 applied. Without one (0) it is
// what is done: reading addresses. If out is nil, nothing is shown. For work within other work, out is what [Progress.Above] of that
// returns.
func Begin(out io.Writer, what string, total int) *Progress {
	if out == nil {
		out = io.Discard
	}
	p := &Progress{out: out, tty: cursorMoves(out), total: total, what: what, began: time.Now(), ended: make(chan struct{})}
	every := lineEvery
	if p.tty {
		every = frame
	}
	p.loop.Go(func() { p.run(every) })
	return p
}

func (p *Progress) run(every time.Duration) {
	t := time.NewTicker(every)
	defer t.Stop()
	for {
		select {
		case <-p.ended:
			return
		case <-t.C:
			p.show()
		}
	}
}

// Step says that one more is done.
func (p *Progress) Step() {
	p.mu.Lock()
	p.done++
	p.mu.Unlock()
}

// Now says which of it is being done.
func (p *Progress) Now(what string) {
	p.mu.Lock()
	p.now = what
	p.mu.Unlock()
}

// End takes the bar away. What was said in lines stays.
func (p *Progress) End() {
	close(p.ended)
	p.loop.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hide()
}

// Above is w for what is printed while the work goes on: it is printed above the bar. The bar stands between two lines only.
func (p *Progress) Above(w io.Writer) io.Writer {
	if !p.tty {
		return w
	}
	a := above{p, w}
	if f, ok := w.(term.File); ok {
		return aboveFile{f, a}
	}
	return a
}

type above struct {
	p *Progress
	w io.Writer
}

func (a above) Write(text []byte) (int, error) {
	a.p.mu.Lock()
	defer a.p.mu.Unlock()
	a.p.hide()
	if len(text) > 0 {
		a.p.open = text[len(text)-1] != '\n' && !bytes.HasSuffix(text, []byte(eraseLine)) // the latter of work within this
	}
	return a.w.Write(text)
}

// aboveFile is above for a terminal, which is still seen to be one.
type aboveFile struct {
	term.File
	a above
}

func (f aboveFile) Write(text []byte) (int, error) { return f.a.Write(text) }

// show draws the bar again, or writes a line.
func (p *Progress) show() {
	p.mu.Lock()
	defer p.mu.Unlock()
	took := time.Since(p.began)
	switch {
	case took < quiet || p.open:
	case p.tty:
		p.shown = true
		_ = Fprint(p.out, eraseLine+p.line(took, columns(p.out)-1)) // the work goes on without it
	default:
		fmt.Fprintf(p.out, "twill: %s\n", p.text(took))
	}
}

func (p *Progress) hide() {
	if p.shown {
		p.shown = false
		_, _ = io.WriteString(p.out, eraseLine) // as above
	}
}

// text is how far it is, in words.
func (p *Progress) text(took time.Duration) string {
	text, left := p.what, ""
	if p.total > 0 {
		text = fmt.Sprintf("%d of %d %s", p.done, p.total, p.what)
		if rest := took / time.Duration(max(p.done, 1)) * time.Duration(p.total-p.done); p.done > 0 && rest >= time.Second {
			left = fmt.Sprintf(", about %s left", rest.Round(time.Second))
		}
	}
	if p.now != "" {
		text += ": " + p.now
	}
	return text + ", " + took.Truncate(time.Second).String() + left
}

// line is the same with a bar, as wide as the terminal allows.
func (p *Progress) line(took time.Duration, width int) string {
	text := p.text(took)
	room := min(width-lipgloss.Width(text)-1, barWidth)
	if p.total <= 0 || room < barLeast {
		return lipgloss.NewStyle().MaxWidth(width).Render(text)
	}
	full := min(room*p.done/p.total, room)
	return Allow.Render(strings.Repeat("█", full)) + Faint.Render(strings.Repeat("░", room-full)) + " " + text
}
