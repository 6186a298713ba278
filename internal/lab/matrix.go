package lab

import (
	"errors"
	"fmt"
	"io"
	"net/netip"

	"github.com/twillnet/twill/internal/terminal"
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

// mark shows one cell: what the kernel did, and the oracle's verdict where they differ.
func mark(c Cell) string {
	sign := func(ok bool) string {
		if ok {
			return "yes"
		}
		return "no"
	}
	switch {
	case c.Err != nil:
		return terminal.Wrong.Render("error")
	case c.Leaked:
		return terminal.Wrong.Render("LEAK")
	case c.Got != c.Want:
		return terminal.Wrong.Render(sign(c.Got) + "≠" + sign(c.Want))
	case c.Got:
		return terminal.Allow.Render("✓ yes")
	}
	return terminal.Deny.Render("✗ no")
}

// PrintMatrix shows who reaches which service, measured, and marks what
// differs from the oracle.
func PrintMatrix(w io.Writer, s *Spec, cells []Cell) error {
	at := map[[2]string][]Cell{}
	for _, c := range cells {
		at[[2]string{c.Src, c.Dst}] = append(at[[2]string{c.Src, c.Dst}], c)
	}
	var rows []string
	for _, x := range s.Workloads {
		rows = append(rows, x.String())
	}
	for _, h := range s.Hosts {
		rows = append(rows, "host/"+h.Name)
	}
	titles := []string{terminal.Title.Render("from \\ to")}
	for _, d := range s.Workloads {
		titles = append(titles, terminal.Title.Render(fmt.Sprintf("%s:%d", d.Name, d.Port)))
	}
	t := terminal.NewTable(w, titles...)
	for _, r := range rows {
		line := []string{r}
		for _, d := range s.Workloads {
			cs := at[[2]string{r, d.String()}]
			text := terminal.Faint.Render("·")
			if len(cs) > 0 {
				text = mark(cs[0])
				if len(cs) > 1 && mark(cs[1]) != text {
					text += " /v6 " + mark(cs[1])
				}
			}
			line = append(line, text)
		}
		t.Row(line...)
	}
	err := t.Flush()
	for _, c := range cells {
		if !c.Right() {
			err = errors.Join(err, terminal.Fprint(w, terminal.Wrong.Render("differs")+fmt.Sprintf(" %s -> %s %s tcp/%d: measured %v, verdict/world says %v (%s) %v\n", c.Src, c.Dst, c.DstAddr, c.Port, c.Got, c.Want, c.By, orNothing(c.Err))))
		}
	}
	return err
}

func orNothing(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
