package iptables

import (
	"fmt"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// outcome is a chain that a policy's chain goes to, whose end returns to the caller of the policy.
type outcome string

const (
	allow     outcome = "tw-allow"
	pass      outcome = "tw-pass"
	early     outcome = "tw-early"
	untracked outcome = "tw-untracked"
	unseen    outcome = "tw-unseen" // by conntrack, and no policy parsed so
	found     outcome = "tw-found"  // of a block's chain
	reset     outcome = "tw-reset"  // TCP; in table filter
)

var outcomes = []outcome{allow, pass, early, untracked, unseen, found, reset}

// rules set the mark for what was decided.
func (o outcome) rules(m kernel.Marks) []string {
	add := func(target string) string { return fmt.Sprintf("-A %s %s", o, target) }
	set := func(bits uint32) string { return add(setMark(m, bits, bits)) }
	switch o {
	case pass:
		return []string{set(kernel.MarkPassed)}
	case found:
		return []string{set(kernel.MarkScratch1)}
	case early:
		return []string{set(kernel.MarkAllowed | kernel.MarkHostPassed)}
	case unseen:
		return []string{add("-j CT --notrack"), set(kernel.MarkAllowed)}
	case reset:
		// The reset has the source of whom the packet was for, and no socket, as what is forwarded. If it belongs to no connection, policy of the host's
		// endpoint would have to be asked about it, and would take it for that.
		return []string{add("-m conntrack --ctstate INVALID,UNTRACKED -j DROP"), add(protocol(tcp) + " -j REJECT --reject-with tcp-reset")}
	case untracked:
		return []string{add("-j CT --notrack"), set(kernel.MarkAllowed | kernel.MarkUntracked | kernel.MarkHostPassed)}
	}
	return []string{set(kernel.MarkAllowed)}
}

// answer returns the target that goes to an outcome.
func (w *writer) answer(o outcome) string {
	w.outcomes[o] = true
	return "-g " + string(o)
}

// target returns the target of a rule.
func (w *writer) target(r rules.Rule) (string, error) {
	switch r.Action {
	case rules.Deny:
		return w.reported(r.By, w.deny()), nil
	case rules.Allow, rules.Accept: // ACCEPT would skip the later stages of the hook
		return w.reported(r.By, w.answer(allow)), nil
	case rules.Pass:
		return w.reported(r.By, w.answer(pass)), nil
	case rules.Log:
		return w.log(r)
	case rules.Jump:
		return "-j " + ChainName(r.Target), nil
	case rules.Begin:
		return setMark(w.Marks, 0, kernel.MarkAllowed|kernel.MarkPassed), nil
	case rules.Next:
		return setMark(w.Marks, 0, kernel.MarkPassed), nil
	case rules.Return:
		return "-j RETURN", nil
	case rules.AllowUntracked:
		if w.Table != Raw { // elsewhere conntrack has made an entry already, and the kernel refuses the target
			return "", fmt.Errorf("table %s: only raw is before conntrack", w.Table)
		}
		return w.reported(r.By, w.answer(untracked)), nil
	case rules.AllowEarly:
		return w.reported(r.By, w.answer(early)), nil
	case rules.Reset, rules.Reject:
		return w.reported(r.By, w.reject(r.Action)), nil
	}
	return "", fmt.Errorf("action %s has no form in iptables", r.Action)
}

// Reporter names what decides about packets, so that reports of them can be resolved.
type Reporter interface {
	// Prefix is the prefix under which packets are reported that a decision of rules of a generation is about; empty: they are not reported.
	Prefix(by intent.Decision, generation uint16) string
	// Logged is the same of a rule with action Log.
	Logged(by intent.Decision, generation uint16) string
}

// reported returns the target that does what another does and, before, reports the packet.
func (w *writer) reported(by intent.Decision, target string) string {
	if w.reporter == nil {
		return target
	}
	prefix := w.reporter.Prefix(by, w.generation)
	if prefix == "" {
		return target
	}
	then := target
	if strings.Contains(target, "tcp-reset") { // the kernel wants it to be said again
		then = protocol(tcp) + " " + target
	}
	return "-g " + w.report(prefix+target, fmt.Sprintf("-j NFLOG --nflog-group %d --nflog-size %d --nflog-prefix %s", kernel.NFLogVerdicts, logSnaplen, quote(prefix, maxPrefix)), then)
}

// report returns a chain with some targets, whose name is the hash of a text.
func (w *writer) report(text string, targets ...string) string {
	chain := shortName("tw-r-", text)
	w.reports[chain] = nil
	for _, t := range targets {
		w.reports[chain] = append(w.reports[chain], "-A "+chain+" "+t)
	}
	return chain
}

// deny returns the target of what is denied without saying that it be rejected.
func (w *writer) deny() string {
	if w.Reject && w.Table == Filter {
		return "-j REJECT" // with the kernel's default: port unreachable
	}
	return "-j DROP"
}

// reject returns the target that answers the sender; in tables other than filter the kernel refuses REJECT.
func (w *writer) reject(a rules.Action) string {
	switch {
	case w.Table != Filter:
		return "-j DROP"
	case a == rules.Reset:
		return w.answer(reset)
	case w.Family == intent.IPv6:
		return "-j REJECT --reject-with icmp6-adm-prohibited"
	}
	return "-j REJECT --reject-with icmp-admin-prohibited"
}

// ends reports whether a packet leaves the chain with an action. If not, the action must apply once only.
func ends(a rules.Action) bool {
	return a != rules.Log && a != rules.Jump && a != rules.Begin && a != rules.Next
}

// Limits of the tools and the kernel.
const (
	logSnaplen = 128 // bytes: the headers; see nft
	// maxPrefix is what xt_NFLOG keeps, in bytes: the legacy backend cuts the rest off silently, and the end names the rule.
	maxPrefix = 63
	maxRate   = 10000 // packets a second, and the greatest burst
	day       = 24 * time.Hour
)

// log reports a packet, within the rate limit of the settings. Over the limit, a packet goes on as any logged packet does.
func (w *writer) log(r rules.Rule) (string, error) {
	text := fmt.Sprintf("-j NFLOG --nflog-group %d --nflog-size %d", kernel.NFLogUser, logSnaplen)
	if r.Comment != "" {
		text += " --nflog-prefix " + quote(r.Comment, maxPrefix)
	}
	if w.reporter != nil { // a group has one reader: the agent has another
		prefix := w.reporter.Logged(r.By, w.generation)
		text = "-j " + w.report(prefix+text, text, fmt.Sprintf("-j NFLOG --nflog-group %d --nflog-size %d --nflog-prefix %s", kernel.NFLogLogged, logSnaplen, quote(prefix, maxPrefix)))
	}
	set := w.Log
	if set.Rate == 0 {
		return text, nil
	}
	unit, ok := map[time.Duration]string{time.Second: "second", time.Minute: "minute", time.Hour: "hour", day: "day"}[set.Per]
	if !ok {
		return "", fmt.Errorf("limit of logs: no unit for %s", set.Per)
	}
	rate := min(uint64(set.Rate), uint64(maxRate*(set.Per/time.Second)))
	// The kernel computes the credit of a full bucket in 32 bits and refuses more than about five days of the rate.
	burst := min(uint64(set.Burst), maxRate, rate*uint64(day/set.Per))
	return fmt.Sprintf("-m limit --limit %d/%s --limit-burst %d %s", rate, unit, max(burst, 1), text), nil
}

// setMark sets some bits of the marks of packets, and clears the rest of a mask.
func setMark(m kernel.Marks, bits, mask uint32) string {
	return fmt.Sprintf("-j MARK --set-xmark %#x/%#x", m.Of(bits), m.Of(mask))
}

func matchMark(m kernel.Marks, bits, mask uint32) string {
	return fmt.Sprintf("-m mark --mark %#x/%#x", m.Of(bits), m.Of(mask))
}
