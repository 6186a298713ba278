package iptables

import (
	"crypto/sha256"
	"encoding/base64"

	"github.com/twillnet/twill/internal/dataplane/rules"
)

// Longest names of a chain and of a set.
const (
	maxChain = 28
	maxSet   = 31
)

// maxComment is the longest comment of a rule.
const maxComment = 255

// hashed is the length of a hash: 132 bits, since users choose what is hashed. Of a chain's name that leaves nothing for people,
// and of a set's nothing but what kind it is.
const hashed = 22

// ChainName is the name in iptables of a neutral chain. No outcome's chain has the form that it has.
func ChainName(neutral string) string { return shortName("tw-", neutral) }

// shortName tells texts apart by their hash; comments say what is meant.
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

// quote makes one word of a text. Fit leaves nothing in it that would have to be escaped.
func quote(text string, room int) string { return `"` + rules.Fit(text, room) + `"` }
