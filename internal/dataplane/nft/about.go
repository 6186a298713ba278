package nft

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/classify"
	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// codeOf is the inverse of numberOf.
func codeOf(key string) classify.Code { return classify.Code(nftables.NumberOf([]byte(key))) }

// addressesOf says which addresses a class has, as a comment: by the selectors that choose them.
func (d *Driver) addressesOf(a classify.About) string {
	var texts []string
	for _, x := range a.Some {
		text := x.Nets
		if s := d.sets[x.Set]; s != nil {
			text = s.comment
		}
		if x.Port != 0 {
			text = fmt.Sprintf("%s with port %d of protocol %d", text, x.Port, x.Proto)
		}
		texts = append(texts, strings.TrimSpace(text))
	}
	return joined(texts, a.More)
}

// deciders says what may decide in a program, as a comment.
func (d *Driver) deciders(program string) string {
	b := d.tables.bodies[classify.Program(codeOf(program))]
	var texts []string
	for _, c := range b.Codes() {
		texts = append(texts, d.tables.codes[c])
	}
	return joined(texts, 0)
}

// joined is as many of some texts as a comment has room for, each once, and the number of all others.
func joined(texts []string, more int) string {
	slices.Sort(texts)
	texts = slices.Compact(texts)
	out := ""
	for i, text := range texts {
		if text = rules.Fit(text, rules.MaxComment/2); i > 0 {
			text = "; " + text
		}
		if len(out)+len(text) > rules.MaxComment-len("; and 1000000 more") {
			more += len(texts) - i
			break
		}
		out += text
	}
	if more > 0 {
		out += fmt.Sprintf("; and %d more", more)
	}
	return out
}
