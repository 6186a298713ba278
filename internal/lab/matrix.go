package lab

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"charm.land/lipgloss/v2"
)

// Cell is one question to the network, and its answers.
type Cell struct {
	Src, Dst string // names, as `twill why` takes them
	From     string // network namespace of the source
	SrcAddr  netip.Addr
	To       string // network namespace of the destination
	DstAddr  netip.Addr
	Port     uint16

	Want   bool   // what verdict/world says
	By     string // what decided, for people
	Got    bool   // what a real connection did
	Leaked bool   // a connection passed that must not, at any time while we measured
	Err    error  // the measurement itself went wrong
}

// Right reports whether kernel and oracle agree.
func (c Cell) Right() bool { return c.Got == c.Want && !c.Leaked && c.Err == nil }

// questions asks every workload's service from every other workload and every host, on both families.
func (s *Spec) questions() []Cell {
	var cells []Cell
	for _, dst := range s.Workloads {
		ask := func(src, from string, v4, v6 netip.Addr) {
			for i, to := range []netip.Addr{dst.V4, dst.V6} {
				cells = append(cells, Cell{Src: src, Dst: dst.String(), From: from, SrcAddr: []netip.Addr{v4, v6}[i], To: s.workloadNS(dst), DstAddr: to, Port: dst.Port})
			}
		}
		for _, src := range s.Workloads {
			if src.String() != dst.String() {
				ask(src.String(), s.workloadNS(src), src.V4, src.V6)
			}
		}
		for _, h := range s.Hosts {
			ask("host/"+h.Name, s.hostNS(h), h.V4, h.V6)
		}
	}
	return cells
}

var (
	green = lipgloss.NewStyle().Foreground(lipgloss.Color("2"))
	red   = lipgloss.NewStyle().Foreground(lipgloss.Color("1"))
	wrong = lipgloss.NewStyle().Foreground(lipgloss.Color("0")).Background(lipgloss.Color("3")).Bold(true)
	dim   = lipgloss.NewStyle().Faint(true)
	bold  = lipgloss.NewStyle().Bold(true)
)

// mark shows one cell: what the kernel did, and the oracle beside it where they differ.
func mark(c Cell) string {
	sign := func(ok bool) string {
		if ok {
			return "yes"
		}
		return "no"
	}
	switch {
	case c.Err != nil:
		return wrong.Render("error")
	case c.Leaked:
		return wrong.Render("LEAK")
	case c.Got != c.Want:
		return wrong.Render(sign(c.Got) + "≠" + sign(c.Want))
	case c.Got:
		return green.Render("✓ yes")
	}
	return red.Render("✗ no")
}

// PrintMatrix shows who reaches which service, measured, and marks what
// differs from the oracle. It returns the number of wrong cells.
func PrintMatrix(w io.Writer, s *Spec, cells []Cell) int {
	at := map[[2]string][]Cell{}
	bad := 0
	for _, c := range cells {
		at[[2]string{c.Src, c.Dst}] = append(at[[2]string{c.Src, c.Dst}], c)
		if !c.Right() {
			bad++
		}
	}
	var rows []string
	for _, x := range s.Workloads {
		rows = append(rows, x.String())
	}
	for _, h := range s.Hosts {
		rows = append(rows, "host/"+h.Name)
	}
	const first, width = 16, 14
	line := bold.Render(pad("from \\ to", first))
	for _, d := range s.Workloads {
		line += bold.Render(pad(fmt.Sprintf("%s:%d", d.Name, d.Port), width))
	}
	lipgloss.Fprintln(w, line)
	for _, r := range rows {
		line := pad(r, first)
		for _, d := range s.Workloads {
			cs := at[[2]string{r, d.String()}]
			text := dim.Render("·")
			if len(cs) > 0 {
				text = mark(cs[0])
				if len(cs) > 1 && mark(cs[1]) != text {
					text += " /v6 " + mark(cs[1])
				}
			}
			line += pad(text, width)
		}
		lipgloss.Fprintln(w, line)
	}
	for _, c := range cells {
		if !c.Right() {
			lipgloss.Fprintln(w, wrong.Render("differs")+fmt.Sprintf(" %s -> %s %s tcp/%d: measured %v, verdict/world says %v (%s) %v", c.Src, c.Dst, c.DstAddr, c.Port, c.Got, c.Want, c.By, orNothing(c.Err)))
		}
	}
	return bad
}

func orNothing(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func pad(s string, width int) string {
	if n := lipgloss.Width(s); n < width {
		return s + strings.Repeat(" ", width-n)
	}
	return s + " "
}
