package bench

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Plot is a chart of lines over a logarithmic axis, with the range of each point.
type Plot struct {
	Title, X, Y string
	LogY        bool
	Lines       []Line
}

// Line is one of a plot.
type Line struct {
	Name   string
	Points []Spot
}

// Spot is one point of a line: its median, and the least and the most that were measured.
type Spot struct{ X, Y, Low, High float64 }

// The size of a plot, and the room for what is around its axes, in pixels.
const (
	width, height           = 900, 440
	left, right, top, below = 74, 230, 46, 58
)

// colours tell lines apart, also to those who do not see red and green as two (Okabe and Ito's palette).
var colours = []string{"#555555", "#000000", "#e69f00", "#56b4e9", "#d55e00", "#009e73", "#cc79a7", "#0072b2"}

// axis is a scale between two values.
type axis struct {
	low, high float64
	log       bool
	from, to  float64 // in pixels
}

func (a axis) at(v float64) float64 {
	low, high := a.low, a.high
	if a.log {
		v, low, high = math.Log10(v), math.Log10(low), math.Log10(high)
	}
	if high == low {
		return (a.from + a.to) / 2
	}
	return a.from + (v-low)/(high-low)*(a.to-a.from)
}

// ticks are the values that the axis names: powers of ten, with 2 and 5 between them where there are few; or round steps.
func (a axis) ticks() (out []float64) {
	if !a.log {
		step := math.Pow(10, math.Floor(math.Log10(a.high)))
		for a.high/step < 4 {
			step /= 2
		}
		for v := 0.0; v <= a.high*1.0001; v += step {
			out = append(out, v)
		}
		return out
	}
	between := []float64{1}
	if a.high/a.low < 2000 {
		between = []float64{1, 2, 5}
	}
	for p := math.Pow(10, math.Floor(math.Log10(a.low))); p <= a.high; p *= 10 {
		for _, m := range between {
			if v := p * m; v >= a.low*0.999 && v <= a.high*1.001 {
				out = append(out, v)
			}
		}
	}
	return out
}

// SVG draws it.
func (p Plot) SVG() string {
	x, y := p.axes()
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="DejaVu Sans, Helvetica, Arial, sans-serif" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="#ffffff"/>`+"\n")
	words(&b, float64(left), 26, "start", ` font-size="16" font-weight="bold"`, p.Title)
	for _, v := range y.ticks() {
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/>`+"\n", left, width-right, y.at(v), y.at(v))
		words(&b, left-8, y.at(v)+4, "end", "", short(v))
	}
	for _, v := range p.values() {
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#999999"/>`+"\n", x.at(v), x.at(v), height-below, height-below+5)
		words(&b, x.at(v), height-below+20, "middle", "", short(v))
	}
	fmt.Fprintf(&b, `<path d="M%d %d V%d H%d" fill="none" stroke="#333333"/>`+"\n", left, top, height-below, width-right+3*len(p.Lines))
	words(&b, float64(left+width-right)/2, height-14, "middle", "", p.X)
	words(&b, 0, 0, "middle", fmt.Sprintf(` transform="translate(16 %d) rotate(-90)"`, (top+height-below)/2), p.Y)
	names := p.places(y)
	for i, l := range p.Lines {
		x := x // ranges of two lines stand next to each other
		x.from, x.to = x.from+3*float64(i), x.to+3*float64(i)
		l.draw(&b, x, y, colours[i%len(colours)], names[i])
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// draw draws a line, its ranges, and its name at its end.
func (l Line) draw(b *strings.Builder, x, y axis, colour string, name float64) {
	var path strings.Builder
	for i, s := range l.Points {
		if s.High > s.Low {
			fmt.Fprintf(b, `<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f" stroke="%s" stroke-opacity="0.45" stroke-width="2"/>`+"\n", x.at(s.X), x.at(s.X), y.at(s.Low), y.at(s.High), colour)
		}
		fmt.Fprintf(b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", x.at(s.X), y.at(s.Y), colour)
		fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], x.at(s.X), y.at(s.Y))
	}
	fmt.Fprintf(b, `<path d="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", path.String(), colour)
	end := l.Points[len(l.Points)-1]
	fmt.Fprintf(b, `<path d="M%.1f %.1f L%d %.1f" fill="none" stroke="%s" stroke-opacity="0.5"/>`+"\n", x.at(end.X)+5, y.at(end.Y), width-right+22, name, colour)
	words(b, width-right+26, name+4, "start", fmt.Sprintf(` fill="%s"`, colour), l.Name)
}

// axes have all points in them. A logarithmic one begins and ends near the values, any other at zero.
func (p Plot) axes() (x, y axis) {
	x = axis{low: math.Inf(1), log: true, from: left, to: width - right}
	y = axis{low: math.Inf(1), log: p.LogY, from: height - below, to: top}
	for _, l := range p.Lines {
		for _, s := range l.Points {
			x.low, x.high = min(x.low, s.X), max(x.high, s.X)
			y.low, y.high = min(y.low, s.Low), max(y.high, s.High)
		}
	}
	if y.high *= 1.05; y.log {
		y.low *= 0.9
	} else {
		y.low = 0
	}
	return x, y
}

// values are those of the horizontal axis at which something was measured.
func (p Plot) values() (out []float64) {
	seen := map[float64]bool{}
	for _, l := range p.Lines {
		for _, s := range l.Points {
			if !seen[s.X] {
				seen[s.X] = true
				out = append(out, s.X)
			}
		}
	}
	return out
}

// places are the heights of the lines' names: near the lines' ends, and apart from each other.
func (p Plot) places(y axis) []float64 {
	const apart = 17
	out := make([]float64, len(p.Lines))
	order := make([]int, 0, len(p.Lines))
	for i, l := range p.Lines {
		out[i] = y.at(l.Points[len(l.Points)-1].Y)
		at := len(order)
		for at > 0 && out[order[at-1]] > out[i] {
			at--
		}
		order = append(order[:at], append([]int{i}, order[at:]...)...)
	}
	for n := 1; n < len(order); n++ {
		out[order[n]] = max(out[order[n]], out[order[n-1]]+apart)
	}
	for over, n := 0.0, len(order)-1; n >= 0; n-- { // those that went below the axis go up again
		if over = out[order[n]] - float64(height-below-apart*(len(order)-1-n)); over > 0 {
			out[order[n]] -= over
		}
	}
	return out
}

func words(b *strings.Builder, x, y float64, anchor, more, text string) {
	escaped := strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text)
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, more, escaped)
}

// short is a number as people write it: 20,000; 0.5.
func short(v float64) string {
	if v < 1000 {
		return strconv.FormatFloat(v, 'g', 4, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
