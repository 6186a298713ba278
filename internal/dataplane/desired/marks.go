package desired

// unmarked are the stages that come before all that host endpoints are asked. Later ones know by the mark of a packet what an early one allowed, and
// a packet may bear it without having been there: a process that may set marks sent it, or a tunnel's device made it of another, out of which it took
// it or which it put into it (the mark goes over, skb_scrub_packet in net/core/skbuff.c). Either way it comes by one of these hooks first.
var unmarked = []struct {
	name string
	hook Hook
}{
	{"prerouting-marks", Hook{At: Prerouting, Priority: -301}},
	{"output-marks", Hook{At: Output, Priority: -301}},
}

// unmark makes those stages desired.
func (s *State) unmark() (names []string) {
	for i := range unmarked {
		name := unmarked[i].name
		s.want(Chain{Name: name, Owner: HostEndpoints, Hook: &unmarked[i].hook, Guards: []Guard{{Do: Unmark, Comment: "allowed by no early stage yet"}}})
		names = append(names, name)
	}
	return names
}
