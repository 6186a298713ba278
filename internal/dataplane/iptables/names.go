package iptables

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/twillnet/twill/internal/dataplane/rules"
)

// Longest names of a chain and of a set, in bytes.
const (
	maxChain = 28
	maxSet   = 31
)

// maxComment is the longest comment of a rule, in bytes.
const maxComment = 255

// hashed is the length of a hash in characters: 132 bits, since users choose what is hashed. That leaves no room for a readable part in the name of a chain,
// and for nothing but its kind in that of a set.
const hashed = 22

// ChainName returns the name in iptables of a neutral chain. No outcome's chain has a name of this form.
func ChainName(neutral string) string { return shortName("tw-", neutral) }

// shortName returns a name by the hash of text; comments have the readable name.
func shortName(prefix, text string) string {
	sum := sha256.Sum256([]byte(text))
	return prefix + base64.RawURLEncoding.EncodeToString(sum[:])[:hashed]
}

func comment(text string) string {
	if text == "" {
		return ""
	}
	return "-m comment --comment " + quote(text, maxComment)
}

// quote returns a text as one quoted word. Fit leaves nothing in it that would have to be escaped.
func quote(text string, room int) string { return `"` + rules.Fit(text, room) + `"` }
