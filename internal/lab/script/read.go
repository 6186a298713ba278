package script

import (
	"net/netip"
	"strings"
	"time"
)

// maxHosts is what the lab's address plan has room for.
const maxHosts = 100

func readHosts(l *line) Action {
	var h Hosts
	for _, s := range l.script.Steps {
		if _, ok := s.Do.(Hosts); ok {
			l.fail(1, "hosts stand in line %d already; name all of them there", s.Line)
		}
	}
	reflectors := false
	for l.err == nil && (len(h.Names) == 0 || len(l.words) > 0 || reflectors && len(h.Reflectors) == 0) {
		if len(h.Names) > 0 && l.take("store") {
			h.Store = l.name(aHost)
			break
		}
		if len(h.Names) > 0 && !reflectors && l.take("reflectors") {
			reflectors = true
			continue
		}
		if w := l.words; len(w) > 0 && len(w[0].text) > maxLink {
			l.fail(w[0].col, "%q is longer than the %d characters of a link's name", w[0].text, maxLink)
		}
		name := l.declare(aHost)
		if h.Names = append(h.Names, name); reflectors {
			h.Reflectors = append(h.Reflectors, name)
		}
	}
	if len(h.Names) > maxHosts {
		l.fail(1, "%d hosts; want at most %d", len(h.Names), maxHosts)
	}
	return h
}

// maxLink is IFNAMSIZ less the end of the string, less what the ends of a link in the switch are called.
const maxLink = 10

func readLink(l *line) Action {
	a := Link{A: l.name(aHost), B: l.name(aHost)}
	if a.A == a.B {
		l.fail(1, "%s and %s are one host; a link has two ends", a.A, a.B)
	}
	w := word{a.A + "-" + a.B, 1}
	if len(l.words) > 0 {
		w = l.next("a name of the link")
	}
	if len(w.text) > maxLink {
		l.fail(w.col, "%q is longer than %d characters; want a shorter name", w.text, maxLink)
	}
	l.declared(w, aLink)
	a.Name = w.text
	return a
}

func readWorkload(l *line) Action {
	w := Workload{Namespace: "default", Labels: map[string]string{}, Profiles: []string{"projectcalico-default-allow"}}
	w.Host, w.Name = l.name(aHost), l.declare(aWorkload)
	if at := l.words; len(at) > 0 {
		if w.V4 = l.addr("an IPv4 address"); !w.V4.Is4() {
			l.fail(at[0].col, "%q: want an IPv4 address first", at[0].text)
		}
	} else {
		l.next("an IPv4 address")
	}
	if len(l.words) > 0 {
		if v6, err := netip.ParseAddr(l.words[0].text); err == nil && v6.Is6() {
			w.V6, l.words = v6, l.words[1:]
		}
	}
	for len(l.words) > 0 {
		l.option(&w)
	}
	return w
}

func readStart(l *line) Action {
	p := Power{On: true, Who: l.hostOrStore()}
	for p.Who != "store" && len(l.words) > 0 {
		w := l.next("a variable")
		if name, _, ok := strings.Cut(w.text, "="); !ok || name == "" {
			l.fail(w.col, "%q: want NAME=VALUE, for the environment of the node", w.text)
		}
		p.Env = append(p.Env, w.text)
	}
	return p
}

func (l *line) option(w *Workload) {
	o := l.next("an option")
	name, value, ok := strings.Cut(o.text, "=")
	switch {
	case o.text == "bare":
		w.Bare = true
	case !ok || name == "":
		l.fail(o.col, "%q: want bare, ns=NAMESPACE, profile=NAME, port=NAME:NUMBER or LABEL=VALUE", o.text)
	case name == "ns":
		w.Namespace = value
	case name == "profile":
		w.Profiles = nil
		if value != "" {
			w.Profiles = strings.Split(value, ",")
		}
	case name == "port":
		port, number, _ := strings.Cut(value, ":")
		w.PortName, w.Port = port, l.port(o, number)
	default:
		w.Labels[name] = value
	}
}

func readApply(l *line) Action { return Apply{l.not, l.rest("a file")} }

func readDelete(l *line) Action {
	d := Delete{l.not, l.rest("a kind, or -f FILE")}
	if len(d.Args) < 2 {
		l.fail(l.end, "a name is missing; want: %s", l.usage)
	}
	return d
}

func readStream(l *line) Action {
	if l.take("check") {
		return StreamCheck{l.name(aStream), l.oneOf("judgement", "lossless", "alive", "stopped", "silent")}
	}
	s := Stream{Name: l.declare(aStream), Flow: Flow{Src: l.name(aHost, aWorkload), Dst: l.name(aHost, aWorkload)}}
	s.Proto, s.Port = l.proto("tcp", "udp")
	l.take("v4")
	s.V6 = l.take("v6")
	s.V4 = !s.V6
	return s
}

func readRestart(l *line) Action {
	r := Restart{Who: l.hostOrStore(), What: "agent"}
	if len(l.words) > 0 && r.Who != "store" {
		r.What = l.oneOf("process", "agent", "node")
	}
	return r
}

func readKill(l *line) Action {
	k := Kill{Host: l.name(aHost)}
	k.What = l.oneOf("process", "agent", "bgp", "bfd", "confd", "proxy")
	k.Hard = l.take("-9")
	return k
}

func readCut(l *line, heal bool) Action {
	if l.take("link") {
		c := Cut{Heal: heal, Link: l.name(aLink, aHost)}
		c.Silent = !heal && l.take("silently")
		return c
	}
	c := Cut{Heal: heal, Host: l.name(aHost)}
	l.oneOf("end", "store")
	return c
}

func readBusy(l *line) Action {
	w := l.next("a time span, such as 5s")
	d, err := time.ParseDuration(w.text)
	if err != nil || d <= 0 {
		l.fail(w.col, "%q is no time span; want one such as 5s", w.text)
	}
	return Busy{d}
}

func readCompact(l *line) Action {
	l.oneOf("database", "store")
	return Compact{}
}

func readEmpty(l *line) Action {
	l.oneOf("database", "store")
	return Empty{}
}

func readExec(l *line) Exec {
	e := Exec{Not: l.take("!")}
	e.Where = l.name(aHost, aWorkload)
	e.Argv = l.rest("a command")
	return e
}

func readStatus(l *line) Action {
	s := Status{Host: l.name(aHost)}
	if len(l.words) > 0 {
		s.Pattern = l.pattern()
	}
	return s
}

func readCapture(l *line) Action {
	if l.take("check") {
		c := CaptureCheck{Name: l.name(aCapture)}
		l.oneOf("measure", "count")
		c.Compare = l.compare()
		return c
	}
	c := Capture{Where: l.name(aHost, aWorkload), Link: l.next("a link").text, Name: l.declare(aCapture)}
	if len(l.words) == 0 {
		return c
	}
	if w := l.words[0].text; w == "tcp" || w == "udp" || w == "ipip" {
		c.Proto, l.words = w, l.words[1:]
		return c
	}
	c.Proto, c.Port = l.proto("tcp", "udp", "icmp")
	return c
}

func readWait(l *line) Action {
	switch l.oneOf("condition", "agent", "settled", "status", "log", "metric", "exec") {
	case "agent":
		return WaitAgent{l.name(aHost)}
	case "settled":
		return WaitSettled{}
	case "status":
		return WaitStatus{l.name(aHost), l.name(aWorkload), l.next("a status").text}
	case "log":
		return WaitLog{l.hostOrStore(), l.pattern()}
	case "metric":
		return readMetric(l)
	case "exec":
		return WaitExec{Exec: readExec(l)}
	}
	return nil // oneOf has said why
}

func readMetric(l *line) Action {
	m := WaitMetric{Host: l.name(aHost), Labels: map[string]string{}}
	w := l.next("a metric")
	name, labels, has := strings.Cut(w.text, "{")
	m.Name = name
	if inner, closed := strings.CutSuffix(labels, "}"); has {
		if !closed {
			l.fail(w.col, "%q: want NAME{LABEL=VALUE,…}", w.text)
		}
		for pair := range strings.SplitSeq(inner, ",") {
			k, v, ok := strings.Cut(pair, "=")
			if !ok {
				l.fail(w.col, "%q in %q: want LABEL=VALUE", pair, w.text)
			}
			m.Labels[strings.TrimSpace(k)] = strings.Trim(v, `" `)
		}
	}
	m.Compare = l.compare()
	return m
}
