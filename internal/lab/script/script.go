// Package script reads the lab's language: what a scenario does, line by line.
//
// In: the text of a file. Out: a [Script] of typed steps and the documents
// that the file embeds, or an [Error] that says line, column and what was
// expected. It runs nothing; package lab does. docs/lab.md is the reference.
package script

import (
	"fmt"
	"strings"
)

// Script is one scenario.
type Script struct {
	File  string // as given to Parse
	Title string // its first comment
	Text  string
	Steps []Step
	Files map[string][]byte // embedded documents, by name
}

// Step is one line.
type Step struct {
	Line int
	Text string
	Do   Action
}

// Error says where a scenario cannot be read, and why.
type Error struct {
	File         string
	Line, Column int // from 1
	Reason       string
}

// Error is file:line:column: reason, as compilers say it.
func (e *Error) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// Parse reads a scenario; file is for messages alone.
func Parse(file, text string) (*Script, error) {
	s := &Script{File: file, Text: text, Files: map[string][]byte{}}
	lines := strings.SplitAfter(text, "\n")
	end := len(lines)
	for i, l := range lines {
		if _, ok := fileMark(l); ok {
			end = i
			break
		}
	}
	if err := s.readFiles(lines[end:], end); err != nil {
		return nil, err
	}
	p := &parser{script: s, seen: map[string]kind{}}
	for i, l := range lines[:end] {
		if err := p.line(i+1, strings.TrimRight(l, "\r\n")); err != nil {
			return nil, err
		}
	}
	if len(s.Steps) == 0 {
		return nil, &Error{file, 1, 1, "no command here; a scenario begins with: hosts NAME…"}
	}
	return s, nil
}

// fileMark reports whether a line begins an embedded document: -- NAME --
func fileMark(line string) (name string, ok bool) {
	line = strings.TrimRight(line, "\r\n")
	name, ok = strings.CutPrefix(line, "-- ")
	if !ok {
		return "", false
	}
	if name, ok = strings.CutSuffix(name, " --"); !ok {
		return "", false
	}
	name = strings.TrimSpace(name)
	return name, name != ""
}

func (s *Script) readFiles(lines []string, at int) error {
	name := ""
	for i, l := range lines {
		if n, ok := fileMark(l); ok {
			if _, twice := s.Files[n]; twice {
				return &Error{s.File, at + i + 1, 4, fmt.Sprintf("a second document %s; each wants a name of its own", n)}
			}
			name, s.Files[n] = n, []byte{}
			continue
		}
		s.Files[name] = append(s.Files[name], l...)
	}
	return nil
}

// word is a part of a line.
type word struct {
	text string
	col  int // from 1, in bytes
}

// split takes a line apart: words between blanks; '…' as it stands, "…" with
// \" and \\; a # where a word could begin ends the line.
func split(line string) ([]word, *Error) {
	var words []word
	for i := 0; i < len(line); {
		switch line[i] {
		case ' ', '\t':
			i++
		case '#':
			return words, nil
		default:
			text, n, err := one(line[i:])
			if err != "" {
				return nil, &Error{Column: i + 1, Reason: err}
			}
			words = append(words, word{text, i + 1})
			i += n
		}
	}
	return words, nil
}

// one reads a word at the begin of s, and says how long it is there.
func one(s string) (text string, n int, reason string) {
	var b strings.Builder
	for n < len(s) && s[n] != ' ' && s[n] != '\t' {
		quote := s[n]
		if quote != '\'' && quote != '"' {
			b.WriteByte(quote)
			n++
			continue
		}
		closed := false
		for n++; n < len(s) && !closed; n++ {
			switch {
			case s[n] == quote:
				closed = true
			case s[n] == '\\' && quote == '"' && n+1 < len(s) && (s[n+1] == '"' || s[n+1] == '\\'):
				n++
				b.WriteByte(s[n])
			default:
				b.WriteByte(s[n])
			}
		}
		if !closed {
			return "", 0, fmt.Sprintf("this quote is never closed; want another %c", quote)
		}
	}
	return b.String(), n, ""
}
