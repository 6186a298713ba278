package rules

import (
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/twillnet/twill/internal/intent"
)

// MaxComment is the longest comment, or log prefix, that a kernel keeps, in bytes: see docs/design/kernel.md.
const MaxComment = 127

// PolicyChain returns the name of the chain of a policy or profile in one direction.
func PolicyChain(id intent.PolicyID, dir intent.Direction) string {
	return Name("pol-"+inOut(dir)+"-", policyName(id), id.String())
}

// SilentChain returns the name of the chain of a policy for stages at which it cannot reject.
func SilentChain(id intent.PolicyID, dir intent.Direction) string {
	return Name("mute-"+inOut(dir)+"-", policyName(id), id.String())
}

// EndpointChain returns the name of the chain through which an endpoint receives or sends.
func EndpointChain(id intent.EndpointID, dir intent.Direction) string {
	return Name("ep-"+inOut(dir)+"-", id.Name, id.String())
}

// LimitChain returns the name of the chain of what an endpoint limits in a direction.
func LimitChain(id intent.EndpointID, dir intent.Direction) string {
	return Name("qos-"+inOut(dir)+"-", id.Name, id.String())
}

// ConnectionsChain returns the name of the chain that counts an endpoint's connections in a direction.
func ConnectionsChain(id intent.EndpointID, dir intent.Direction) string {
	return Name("qos-conn-"+inOut(dir)+"-", id.Name, id.String())
}

// SpoofChain returns the name of the chain of prefixes that an endpoint may send from other than its own addresses.
func SpoofChain(id intent.EndpointID) string { return Name("ep-src-", id.Name, id.String()) }

// readable is how many bytes of a readable name go into the name of a chain or set.
const readable = 28

// Hash returns the bytes of a name that distinguish it: 128 bits, since users choose what is hashed, and could find
// two policies with one short hash by trying. It is a variable so that tests can make two owners of one name.
var Hash = func(id string) []byte {
	sum := sha256.Sum256([]byte(id))
	return sum[:16]
}

var alphabet = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// Name returns a name that the kernel and its tools accept: prefix, the readable part of text, and the hash of id, which alone
// distinguishes names. The end of a long text says more than its start.
func Name(prefix, text, id string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
			return r
		}
		return '.'
	}, text)
	if n := len(text); n > readable {
		text = text[n-readable:]
	}
	return prefix + text + "-" + alphabet.EncodeToString(Hash(id))
}

// RuleComment returns the comment of a rule: "prod/np-web ingress[2]".
func RuleComment(id intent.RuleID) string {
	return shorten(policyName(id.Policy), fmt.Sprintf(" %s[%d]", direction(id.Direction), id.Index))
}

// DecisionComment names what decides for people: a rule, the end of a tier, or that no profile matched.
func DecisionComment(by intent.Decision) string {
	switch {
	case by.Reason == "":
		return "no rule decides"
	case by.Rule.Index != intent.NoRule:
		return RuleComment(by.Rule)
	case by.Reason == intent.ReasonEndOfTier:
		return shorten("end of tier "+by.Tier, "")
	case by.Rule.Policy != intent.PolicyID{}:
		return shorten(policyName(by.Rule.Policy), ": "+by.Reason)
	}
	return by.Reason
}

// profileKind is the kind of policies that are profiles.
const profileKind = "Profile"

// policyName is namespace/name, or name; of a profile with its kind, since a policy may have the same name.
func policyName(id intent.PolicyID) string {
	switch {
	case id.Namespace != "":
		return id.Namespace + "/" + id.Name
	case id.Kind == profileKind:
		return "profile " + id.Name
	}
	return id.Name
}

func direction(d intent.Direction) string { return strings.ToLower(d.String()) }

func inOut(d intent.Direction) string {
	if d == intent.Ingress {
		return "in"
	}
	return "out"
}

// Shorten returns text as a comment that the kernel accepts, of at most MaxComment bytes.
func Shorten(text string) string { return shorten(text, "") }

// shorten joins text and tail within MaxComment bytes.
func shorten(text, tail string) string { return Fit(text, MaxComment-len(tail)) + tail }

// Fit returns text cut to at most room bytes, as tools accept it. It is cut in the middle, because names that
// differ mostly do so at an end. Quotes and control characters are replaced: they would end the text in the grammars of nft and iptables, or
// command a terminal that shows it, as those from U+0080 to U+009F do, too.
func Fit(text string, room int) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == '"' || r == '\\' || r == utf8.RuneError {
			return '\''
		}
		return r
	}, text)
	if len(text) > room {
		const gap = ".."
		head := (room - len(gap)) / 2
		rest := room - len(gap) - head
		text = strings.ToValidUTF8(text[:head], "") + gap + strings.ToValidUTF8(text[len(text)-rest:], "")
	}
	return text
}
