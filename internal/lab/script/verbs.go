package script

import (
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// kind is what a name was declared as.
type kind string

const (
	aHost     kind = "host"
	aWorkload kind = "workload"
	aLink     kind = "link"
	aStream   kind = "stream"
	aCapture  kind = "capture"
)

// verb is a command of the language.
type verb struct {
	usage string
	not   bool // may be negated by a ! before it
	read  func(*line) Action
}

var verbs = map[string]verb{
	"hosts":      {"hosts NAME… [reflectors NAME…] [store HOST]", false, readHosts},
	"link":       {"link HOST HOST [NAME]", false, readLink},
	"workload":   {"workload HOST NAME IPV4 [IPV6] [bare] [ns=NAMESPACE] [profile=NAME,…] [port=NAME:NUMBER] [LABEL=VALUE…]", false, readWorkload},
	"endpoint":   {"endpoint WORKLOAD", false, func(l *line) Action { return Endpoint{l.name(aWorkload)} }},
	"apply":      {"[!] apply FILE…", true, readApply},
	"delete":     {"[!] delete KIND NAME… [-n NAMESPACE] | -f FILE", true, readDelete},
	"put":        {"put KEY FILE", false, func(l *line) Action { return Put{l.key(), l.file()} }},
	"delete-key": {"delete-key KEY", false, func(l *line) Action { return Put{l.key(), ""} }},
	"reach":      {"[!] reach SRC DST tcp/PORT|udp/PORT|icmp [v4|v6]", true, func(l *line) Action { return Reach{l.not, l.flow()} }},
	"stream":     {"stream NAME SRC DST tcp/PORT|udp/PORT [v4|v6] | stream check NAME lossless|alive|stopped|silent", false, readStream},
	"restart":    {"restart HOST [agent|node] | restart store", false, readRestart},
	"kill":       {"kill HOST agent|bgp|bfd|confd|proxy [-9]", false, readKill},
	"busy":       {"busy TIME", false, readBusy},
	"cut":        {"cut HOST store | cut link NAME [silently]", false, func(l *line) Action { return readCut(l, false) }},
	"bgp":        {"bgp HOST on|bird|off", false, func(l *line) Action { return BGP{l.name(aHost), l.oneOf("mode", "on", "bird", "off")} }},
	"heal":       {"heal HOST store | heal link NAME", false, func(l *line) Action { return readCut(l, true) }},
	"compact":    {"compact store", false, readCompact},
	"empty":      {"empty store", false, readEmpty},
	"stop":       {"stop HOST|store", false, func(l *line) Action { return Power{false, l.hostOrStore(), nil} }},
	"start":      {"start HOST [NAME=VALUE…] | start store", false, readStart},
	"wait":       {"wait agent HOST | settled | status HOST WORKLOAD STATUS | log HOST|store PATTERN | metric HOST NAME[{LABEL=VALUE,…}] OP NUMBER | exec [!] WHERE COMMAND…", false, readWait},
	"exec":       {"exec [!] WHERE COMMAND…", false, func(l *line) Action { return readExec(l) }},
	"stdout":     {"[!] stdout PATTERN", true, func(l *line) Action { return Match{l.not, "stdout", l.pattern()} }},
	"stderr":     {"[!] stderr PATTERN", true, func(l *line) Action { return Match{l.not, "stderr", l.pattern()} }},
	"status":     {"status HOST [PATTERN]", false, readStatus},
	"capture":    {"capture WHERE LINK NAME [tcp|udp|icmp|ipip|tcp/PORT|udp/PORT] | capture check NAME count OP NUMBER", false, readCapture},
}

// parser holds what earlier lines declared.
type parser struct {
	script *Script
	seen   map[string]kind
}

// line reads one line. The first comment is the title.
func (p *parser) line(number int, text string) error {
	at := func(col int, format string, args ...any) error {
		return &Error{p.script.File, number, col, fmt.Sprintf(format, args...)}
	}
	if c, ok := strings.CutPrefix(strings.TrimSpace(text), "#"); ok && p.script.Title == "" {
		p.script.Title = strings.TrimSpace(c)
	}
	words, e := split(text)
	if e != nil {
		return at(e.Column, "%s", e.Reason)
	}
	if len(words) == 0 {
		return nil
	}
	l := &line{parser: p, end: len(text) + 1}
	l.fail = func(col int, format string, args ...any) {
		if l.err == nil {
			l.err = at(col, format, args...)
		}
	}
	first := words[0]
	if first.text == "!" && len(words) > 1 {
		l.not, words = true, words[1:]
	}
	v, ok := verbs[words[0].text]
	if !ok {
		return at(words[0].col, "no command %q; want one of %s", words[0].text, strings.Join(slices.Sorted(maps.Keys(verbs)), ", "))
	}
	if l.not && !v.not {
		return at(first.col, "%s takes no ! before it; want: %s", words[0].text, v.usage)
	}
	if words[0].text != "hosts" && len(p.script.Steps) == 0 {
		return at(words[0].col, "the first command makes the hosts; want: %s", verbs["hosts"].usage)
	}
	l.words, l.usage = words[1:], v.usage
	do := v.read(l)
	if l.err == nil && len(l.words) > 0 {
		l.fail(l.words[0].col, "%q is too much; want: %s", l.words[0].text, v.usage)
	}
	if l.err != nil {
		return l.err
	}
	p.script.Steps = append(p.script.Steps, Step{number, strings.TrimSpace(text), do})
	if m, ok := do.(Match); ok {
		p.script.await(m)
	}
	return nil
}

// await adds a match to the wait that it follows, if it does: what a program writes may become true later than that it succeeds.
func (s *Script) await(m Match) {
	for i := len(s.Steps) - 1; i >= 0; i-- {
		switch do := s.Steps[i].Do.(type) {
		case Match:
		case WaitExec:
			do.Writes = append(do.Writes, m)
			s.Steps[i].Do = do
			return
		default:
			return
		}
	}
}

// line is what is left of a line while it is read. Its first error stays.
type line struct {
	*parser
	not   bool
	words []word
	usage string
	end   int // the column after the last
	fail  func(col int, format string, args ...any)
	err   error
}

// next takes a word; what says which, for the message when there is none.
func (l *line) next(what string) word {
	if len(l.words) == 0 {
		l.fail(l.end, "%s is missing; want: %s", what, l.usage)
		return word{col: l.end}
	}
	w := l.words[0]
	l.words = l.words[1:]
	return w
}

// take takes the next word if it is this one.
func (l *line) take(text string) bool {
	if len(l.words) > 0 && l.words[0].text == text {
		l.words = l.words[1:]
		return true
	}
	return false
}

// oneOf takes a word of a few.
func (l *line) oneOf(what string, allowed ...string) string {
	w := l.next(what)
	if !slices.Contains(allowed, w.text) {
		l.fail(w.col, "%q is no %s; want %s", w.text, what, strings.Join(allowed, ", "))
	}
	return w.text
}

// declare takes a new name.
func (l *line) declare(k kind) string {
	w := l.next("a name of the " + string(k))
	l.declared(w, k)
	return w.text
}

func (l *line) declared(w word, k kind) {
	switch was, ok := l.seen[w.text]; {
	case ok:
		l.fail(w.col, "%q is a %s already; want another name", w.text, was)
	case w.text == "store" || w.text == "check" || strings.ContainsAny(w.text, "/${}.") || w.text == "":
		l.fail(w.col, "%q cannot be a name; want letters, digits and dashes, and not store or check", w.text)
	default:
		l.seen[w.text] = k
	}
}

// name takes a name that was declared as one of these kinds; a workload may be NAMESPACE/NAME.
func (l *line) name(kinds ...kind) string {
	var what, known []string
	for _, k := range kinds {
		what = append(what, string(k))
	}
	w := l.next(strings.Join(what, " or "))
	short := w.text[strings.LastIndex(w.text, "/")+1:]
	if slices.Contains(kinds, l.seen[short]) && w.text != "" {
		return short
	}
	for n, k := range l.seen {
		if slices.Contains(kinds, k) {
			known = append(known, n)
		}
	}
	slices.Sort(known)
	l.fail(w.col, "no %s %q so far; there are: %s", strings.Join(what, " or "), w.text, strings.Join(known, ", "))
	return ""
}

func (l *line) hostOrStore() string {
	if l.take("store") {
		return "store"
	}
	return l.name(aHost)
}

// file takes the name of a document; whether one on disk exists is seen when it is used.
func (l *line) file() string { return l.next("a file").text }

func (l *line) key() string {
	w := l.next("a key")
	if !strings.HasPrefix(w.text, "/calico/") {
		l.fail(w.col, "%q is no key; want one that begins with /calico/", w.text)
	}
	return w.text
}

// multiline has ^ and $ mean the begin and the end of a line.
const multiline = "(?m)"

func (l *line) pattern() *regexp.Regexp {
	w := l.next("a pattern")
	re, err := regexp.Compile(multiline + w.text)
	if err != nil {
		l.fail(w.col, "%v; want a regular expression of Go", err)
	}
	return re
}

func (l *line) addr(what string) netip.Addr {
	w := l.next(what)
	a, err := netip.ParseAddr(w.text)
	if err != nil {
		l.fail(w.col, "%q is no address; want %s", w.text, what)
	}
	return a
}

func (l *line) port(w word, text string) uint16 {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil || n == 0 {
		l.fail(w.col, "%q has no port; want a number from 1 to 65535", w.text)
	}
	return uint16(n)
}

// proto takes tcp/PORT, udp/PORT or icmp.
func (l *line) proto(allowed ...string) (proto string, port uint16) {
	w := l.next("protocol and port")
	proto, number, has := strings.Cut(w.text, "/")
	switch {
	case !slices.Contains(allowed, proto), has == (proto == "icmp"):
		l.fail(w.col, "%q: want tcp/PORT, udp/PORT%s", w.text, map[bool]string{true: " or icmp"}[slices.Contains(allowed, "icmp")])
	case has:
		port = l.port(w, number)
	}
	return proto, port
}

func (l *line) flow() Flow {
	f := Flow{Src: l.name(aHost, aWorkload), Dst: l.name(aHost, aWorkload)}
	f.Proto, f.Port = l.proto("tcp", "udp", "icmp")
	v4, v6 := l.take("v4"), l.take("v6")
	f.V4, f.V6 = !v6, !v4
	return f
}

func (l *line) compare() Compare {
	op := l.oneOf("comparison", "==", ">=", "<=", ">", "<")
	w := l.next("a number")
	n, err := strconv.ParseFloat(w.text, 64)
	if err != nil {
		l.fail(w.col, "%q is no number", w.text)
	}
	return Compare{op, n}
}

// rest takes all words that are left; at least one.
func (l *line) rest(what string) []string {
	out := []string{l.next(what).text}
	for _, w := range l.words {
		out = append(out, w.text)
	}
	l.words = nil
	return out
}
