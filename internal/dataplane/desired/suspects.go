package desired

import (
	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/intent"
)

// Suspects are the policies because of which parts of the tables are as they are: what may be at fault if the backend's kernel refuses one.
type Suspects struct {
	s       *State
	classes map[classify.Class][]intent.PolicyID
}

// Suspects are those of some classes, and of any code.
func (s *State) Suspects(classes map[classify.Class]struct{}) Suspects {
	return Suspects{s, s.tables.state.Because(classes)}
}

// OfClass are the policies that ask for what the addresses of a class are in.
func (x Suspects) OfClass(c classify.Class) (out []intent.Key) {
	for _, id := range x.classes[c] {
		out = append(out, id)
	}
	return out
}

// OfCode are the policies of the rules that decide.
func (x Suspects) OfCode(c classify.Code) (out []intent.Key) {
	for _, br := range x.s.tables.outcomes[c] {
		out = append(out, SuspectOf(br.By)...)
	}
	return out
}

// OfBody are the policies of all that a program may come to.
func (x Suspects) OfBody(b classify.Body) (out []intent.Key) {
	for _, c := range b.Codes() {
		out = append(out, x.OfCode(c)...)
	}
	return out
}

// SuspectOf is the policy of a decision; none, if none decides.
func SuspectOf(by intent.Decision) []intent.Key {
	if by.Rule.Policy == (intent.PolicyID{}) {
		return nil
	}
	return []intent.Key{by.Rule.Policy}
}

// Users is how many endpoints are closed if an intent is left out.
func (s *State) Users(key intent.Key) (n int) {
	if id, ofPolicy := key.(intent.PolicyID); ofPolicy {
		for range s.groups.Users(id) {
			n++
		}
	}
	return n
}
