package iptables

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/twillnet/twill/internal/dataplane/rules"
)

// Longest names of a chain and of a set.
const (
	maxChain = 28
	maxSet   = 31
)

// maxComment is the longest comment of a rule.
const maxComment = 255

// hashed is the length of a hash: 60 bits, so that among a million names two are alike once in two million nodes.
const hashed = 12

var alphabet = base32.StdEncoding.WithPadding(base32.NoPadding)

// ChainName is the name in iptables of a neutral chain. No outcome's chain has the form that it has.
func ChainName(neutral string) string { return shortName("tw-", neutral, maxChain) }

// shortName tells texts apart by their hash alone; their beginnings are for people. Comments say the rest.
func shortName(prefix, text string, room int) string {
	sum := sha256.Sum256([]byte(text))
	head := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.', r == '_':
			return r
		}
		return '.'
	}, text)
	head = head[:min(len(head), room-len(prefix)-1-hashed)]
	return prefix + head + "-" + strings.ToLower(alphabet.EncodeToString(sum[:])[:hashed])
}

func comment(text string) string {
	if text == "" {
		return ""
	}
	return "-m comment --comment " + quote(text, maxComment)
}

// quote makes one word of a text. Fit leaves nothing in it that would have to be escaped.
func quote(text string, room int) string { return `"` + rules.Fit(text, room) + `"` }
