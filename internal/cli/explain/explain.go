package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/cli/paths"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
	"github.com/twillnet/twill/internal/verdict/world"
)

// Explanation is what `why` answers; with -o json, as it is.
type Explanation struct {
	question string
	Allowed  bool           `json:"allowed"` // in each family
	Answers  []world.Answer `json:"answers"` // one for each family that both ends have
	// Staged: the answers are as if staged policies were enforced.
	Staged bool `json:"staged,omitempty"`
	// Otherwise are the answers of the other world, where it allows what this one denies, or the other way round.
	Otherwise []world.Answer `json:"otherwise,omitempty"`
	Ways      []paths.Way    `json:"ways,omitempty"` // between the hosts of the two ends, for each answer
	Problems  []problem      `json:"problems,omitempty"`
	Reported  []report       `json:"reported,omitempty"` // what is not in force, as nodes say
}

// problem is something wrong in a resource that may bear on the answer.
type problem struct {
	Resource string `json:"resource"`
	Field    string `json:"field,omitempty"`
	Reason   string `json:"reason"`
	// Kept: it cannot be read at all, and an agent that understood what was there before has that in force.
	Kept bool `json:"kept,omitempty"`
}

// printWhy writes an explanation; a denial becomes the exit code.
func (c *command) printWhy(e Explanation, o whyOptions) error {
	e.Allowed = !slices.ContainsFunc(e.Answers, func(a world.Answer) bool { return !a.Allowed })
	err := c.Answer(o.output, console.Answer{Doc: e, Rows: ".answers", Name: ".decided.policy", Table: func(w io.Writer, _ bool) error {
		return terminal.Fprint(w, e.text())
	}})
	if err != nil {
		return err
	}
	if !e.Allowed {
		return console.Exit{Code: Denied}
	}
	return nil
}

func (e Explanation) text() string {
	var b strings.Builder
	shown := map[string]bool{}
	for _, a := range e.Answers {
		text := way(a)
		if shown[text] { // both families alike: once is enough
			fmt.Fprintf(&b, "%s\n", terminal.Faint.Render("The same for "+ends(a)+"."))
			continue
		}
		shown[text] = true
		fmt.Fprintf(&b, "%s  %s\n%s", e.question, terminal.Faint.Render(ends(a)), text)
	}
	if len(e.Answers) == 2 && e.Answers[0].Allowed != e.Answers[1].Allowed {
		fmt.Fprintf(&b, "%s\n", terminal.Warn.Render("IPv4 and IPv6 differ."))
	}
	for _, a := range e.Otherwise {
		says := "If staged policies were enforced: "
		if e.Staged {
			says = "Without staged policies, as it is now: "
		}
		if text := says + decision(a); !shown[text] {
			shown[text] = true
			fmt.Fprintf(&b, "%s%s\n", terminal.Warn.Render(says), decision(a))
		}
	}
	section(&b, "Between the hosts", paths.Lines(e.Ways))
	for i, p := range e.Problems {
		if i == 0 {
			fmt.Fprintf(&b, "\n%s\n", terminal.Warn.Render("Wrong in resources that may bear on this:"))
		}
		fmt.Fprintf(&b, "  %s: %s\n", p.Resource, strings.TrimPrefix(p.Field+": "+p.Reason, ": "))
		if p.Kept {
			b.WriteString("    an agent that understood what was there before keeps that in force; this answer is without it\n")
		}
	}
	b.WriteString(reportsText(e.Reported))
	return b.String()
}

func ends(a world.Answer) string {
	name := func(valid bool, s string) string {
		if !valid {
			return "(no known address)"
		}
		return s
	}
	return name(a.Src.IsValid(), a.Src.String()) + " → " + name(a.Dst.IsValid(), a.Dst.String())
}

// way is the way through the tiers on both ends, and what decided.
func way(a world.Answer) string {
	var b strings.Builder
	for _, h := range a.Hops {
		node := ""
		if h.Node != "" && h.Name != "host/"+h.Node {
			node = terminal.Faint.Render(" on " + h.Node)
		}
		if h.AssumedInterface != "" {
			node += terminal.Warn.Render(", if by " + h.AssumedInterface + ": nothing says which interface of " + h.Node + " it is (--uplink)")
		}
		fmt.Fprintf(&b, "  %s of %s%s\n", strings.ToLower(h.Direction), h.Name, node)
		for _, t := range h.Tiers {
			if t.Outcome != world.OutcomeSkipped {
				fmt.Fprintf(&b, "    tier %s: %s\n", t.Name, outcome(t.Outcome))
				policyLines(&b, t.Policies)
			}
		}
		if len(h.Profiles) > 0 {
			fmt.Fprintf(&b, "    profiles: %s\n", outcome(strings.ToLower(h.Decided.Action)))
			policyLines(&b, h.Profiles)
		}
		if d := h.Decided; d.Reason != world.ReasonRule && d.Reason != world.ReasonProfileRule && d.Reason != world.ReasonEndOfTier {
			fmt.Fprintf(&b, "    %s: %s\n", because(d), outcome(strings.ToLower(d.Action)))
		}
	}
	return b.String() + decision(a) + "\n"
}

func outcome(text string) string {
	switch {
	case text == world.OutcomeAllow:
		return terminal.Allow.Render(text)
	case strings.HasSuffix(text, world.OutcomeDeny):
		return terminal.Deny.Render(text)
	}
	return text
}

func policyLines(b *strings.Builder, ps []world.Policy) {
	for _, p := range ps {
		what := "no rule matched"
		if p.Rule >= 0 {
			what = fmt.Sprintf("rule %d: %s", p.Rule, p.Text)
		}
		what = cmp.Or(p.Note, what)
		for _, i := range p.Logged {
			what += fmt.Sprintf(" (rule %d logged it)", i)
		}
		fmt.Fprintf(b, "      %s: %s\n", resources.Short(api.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}), what)
		if p.NotTranslated != "" {
			fmt.Fprintf(b, "        %s\n", terminal.Warn.Render("closed in part, since it cannot be translated: "+p.NotTranslated))
		}
	}
}

// because is a reason that is no rule.
func because(d world.Decision) string {
	if d.Detail != "" {
		return d.Reason + " (" + d.Detail + ")"
	}
	return d.Reason
}

func decision(a world.Answer) string {
	d := a.Decided
	verdict := terminal.Deny.Render("DENIED")
	if a.Allowed {
		verdict = terminal.Allow.Render("ALLOWED")
	}
	who := ""
	if d.Endpoint != "" {
		who = ", " + strings.ToLower(d.Direction) + " of " + hopName(a, d)
	}
	if d.Reject != "" {
		who += "; " + d.Reject
	}
	switch d.Reason {
	case world.ReasonRule:
		return fmt.Sprintf("%s by %s rule %d (%s) in tier %s%s", verdict, refOf(d.Policy), d.RuleIndex, d.Text, d.Tier, who)
	case world.ReasonProfileRule:
		return fmt.Sprintf("%s by %s rule %d (%s)%s", verdict, refOf(d.Policy), d.RuleIndex, d.Text, who)
	case world.ReasonEndOfTier:
		return fmt.Sprintf("%s by the end of tier %s%s: its last policy here is %s, and no rule matched", verdict, d.Tier, who, refOf(d.Policy))
	}
	return verdict + ": " + because(d) + who
}

func hopName(a world.Answer, d world.Decision) string {
	for _, h := range a.Hops {
		if h.Endpoint == d.Endpoint {
			return h.Name
		}
	}
	return d.Endpoint
}

// refOf writes Kind/namespace/name as everything else here does: kind/namespace/name.
func refOf(policy string) string {
	kind, name, _ := strings.Cut(policy, "/")
	return strings.ToLower(kind) + "/" + name
}

// involved are the problems of resources that the answers speak of, and of
// those whose absence may have made them what they are: what cannot be read,
// closed global policies (they apply to nothing), and sets of addresses.
func involved(problems []api.Problem, us []api.Update, answers []world.Answer) []problem {
	named := map[string]bool{}
	for _, a := range answers {
		for _, h := range a.Hops {
			named["workloadendpoint/"+h.Endpoint] = true
			for _, t := range h.Tiers {
				named["tier/"+t.Name] = true
				for _, p := range t.Policies {
					named[resources.Short(api.Ref{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name})] = true
				}
			}
			for _, p := range h.Profiles {
				named["profile/"+p.Name] = true
			}
		}
	}
	var out []problem
	for _, p := range problems {
		ref, _ := api.ParseKey(p.Key)
		known, kept := false, false
		if i := slices.IndexFunc(us, func(u api.Update) bool { return u.Key == p.Key }); i >= 0 {
			if st, err := api.DecodeStored(us[i]); err == nil {
				ref, known = st.Ref, true
			}
			_, err := api.Admit(us[i])
			kept = err != nil
		}
		if ref.Kind == "" {
			continue // the key of no resource of ours
		}
		switch ref.Kind {
		case api.KindGlobalNetworkPolicy, api.KindGlobalNetworkSet, api.KindNetworkSet:
			known = false
		}
		if name := resources.Short(ref); !known || named[name] {
			out = append(out, problem{Resource: name, Field: p.Field, Reason: p.Reason, Kept: kept})
		}
	}
	return out
}
