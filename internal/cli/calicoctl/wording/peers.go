package wording

import (
	"fmt"
	"io"
	"time"

	"github.com/twillnet/twill/internal/bgp/speaker"
)

// Peers prints the sessions of one family.
func Peers(w io.Writer, r speaker.Report, family string, now time.Time) {
	fmt.Fprintf(w, "\nIPv%s BGP status\n", family)
	var rows [][]string
	for _, s := range r.Sessions {
		if s.Peer.Is4() == (family == "4") {
			state := "start"
			if s.State == speaker.Established {
				state = "up"
			}
			info := s.State
			if s.Why != "" {
				info += " " + s.Why
			}
			rows = append(rows, []string{s.Peer.String(), typeOf(s), state, since(s.Since, now), info})
		}
	}
	if len(rows) == 0 {
		fmt.Fprintf(w, "No IPv%s peers found.\n", family)
		return
	}
	titles := []string{"PEER ADDRESS", "PEER TYPE", "STATE", "SINCE", "INFO"}
	Box(w, titles, rows, len(titles))
}

// typeOf is calicoctl's word for why there is a session.
func typeOf(s speaker.Session) string {
	switch {
	case s.From == "mesh":
		return "node-to-node mesh"
	case s.Global:
		return "global"
	}
	return "node specific"
}

// since is the time of the day, or before today the day, as BIRD writes it.
func since(t, now time.Time) string {
	if now.Sub(t) < 24*time.Hour {
		return t.Format(time.TimeOnly)
	}
	return t.Format(time.DateOnly)
}
