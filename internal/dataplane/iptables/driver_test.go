package iptables

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

// inside runs the tools in the namespace of a test, and can make one fail.
type inside struct {
	k        tools
	fails    func(text string) error
	after    func() // of each restore, before anything is read
	wrote    int
	setReads int
}

func (i *inside) host() Host { return Host(i.k.backend) }

func (i *inside) Save(ctx context.Context, f intent.Family) (s string, err error) {
	i.k.Do(func() { s, err = i.host().Save(ctx, f) })
	return s, err
}

func (i *inside) Restore(ctx context.Context, f intent.Family, text string) (err error) {
	i.wrote++
	if i.fails != nil {
		if err := i.fails(text); err != nil {
			return err
		}
	}
	i.k.Do(func() { err = i.host().Restore(ctx, f, text) })
	if i.after != nil {
		i.after()
	}
	return err
}

func (i *inside) SaveSets(ctx context.Context) (s string, err error) {
	i.setReads++
	i.k.Do(func() { s, err = i.host().SaveSets(ctx) })
	return s, err
}

func (i *inside) RestoreSets(ctx context.Context, text string) (err error) {
	i.k.Do(func() { err = i.host().RestoreSets(ctx, text) })
	return err
}

func (i *inside) DestroySet(name string) (inUse bool, err error) {
	i.k.Do(func() { inUse, err = i.host().DestroySet(name) })
	return inUse, err
}

func (i *inside) Settle() {}

// driven is a driver with what a test needs of it.
type driven struct {
	*Driver
	*inside
	t *testing.T
}

func newDriven(t *testing.T, k tools) driven {
	in := &inside{k: k}
	return driven{NewDriver(in, Config{}), in, t}
}

// again is another driver, as of an agent that restarts.
func (d driven) again() driven { return newDriven(d.t, d.k) }

func (d driven) apply(b ...intent.Batch) []intent.Outcome {
	d.t.Helper()
	for _, x := range b {
		d.Merge(x)
	}
	out, err := d.Apply(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	return out
}

// everything is what the kernel has.
func (d driven) everything() string {
	d.t.Helper()
	var out strings.Builder
	for _, f := range families {
		text, err := d.inside.Save(d.t.Context(), f)
		if err != nil {
			d.t.Fatal(err)
		}
		for line := range strings.Lines(text) {
			if !strings.HasPrefix(line, "#") { // a date
				line, _, _ = strings.Cut(line, " [")
				out.WriteString(strings.TrimSpace(line) + "\n")
			}
		}
	}
	sets, err := d.SaveSets(d.t.Context())
	if err != nil {
		d.t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(sets) {
		if strings.HasPrefix(line, "create") {
			line, _, _ = strings.Cut(line, " hashsize")
		}
		lines = append(lines, strings.TrimSpace(line))
	}
	slices.Sort(lines)
	return out.String() + strings.Join(lines, "\n")
}

// filled is the batch of a node whose sets have members.
func filled() intent.Batch {
	b := nodeBatch()
	for i, s := range b.IPSets {
		if s.Kind == intent.SetPorts {
			b.IPSets[i].Members = members(6, "10.65.0.9/32", "fd65::9/128")
			continue
		}
		b.IPSets[i].Members = members(0, "10.65.0.7/32", "10.9.0.0/24", "fd65::7/128", "0.0.0.0/0")
	}
	return b
}

func TestADriverMakesTheNodeAndFindsItAsItIs(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		for _, o := range d.apply(filled()) {
			if o.Err != nil {
				t.Errorf("%v: %v", o.Key, o.Err)
			}
		}
		first := d.everything()
		for _, want := range []string{"-A FORWARD -j tw-forward\n", "add " + setOf("s:frontend", intent.SetAddrs, intent.IPv4).Name + " 10.9.0.0/24", "128.0.0.0/1", ",tcp:1000"} {
			if !strings.Contains(first, want) {
				t.Errorf("%q is not in\n%s", want, first)
			}
		}
		wrote := d.wrote
		if err := d.Resync(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d.apply(); d.wrote != wrote || len(d.Repairs()) > 0 || d.Lapsed() {
			t.Errorf("what is as it should be was written again: %v", d.Repairs())
		}
		next := d.again()
		next.apply(filled())
		if got := next.everything(); got != first {
			t.Errorf("after a restart there is\n%s\nand not\n%s", got, first)
		}
		next.apply(intent.Batch{Removed: []intent.Key{pod, host, intent.EndpointID{Namespace: "prod", Name: "shut"}, gnp, np, kns}})
		if got := next.everything(); strings.Contains(got, setOf("s:frontend", intent.SetAddrs, intent.IPv4).Name) || strings.Contains(got, "cali1") {
			t.Errorf("what nobody wants is still there:\n%s", got)
		}
	})
}

// TestSizesAreWhatThereIs: after each change, and also of what others changed, once it has been read.
func TestSizesAreWhatThereIs(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		sizes := func(when string) (all Sizes) {
			t.Helper()
			all = d.Sizes()
			for _, is := range all.Tables {
				command := map[intent.Family]string{intent.IPv4: "iptables-", intent.IPv6: "ip6tables-"}[is.Family] + k.backend + "-save"
				list := k.Run(command, "-t", string(is.Table))
				chains, rules := strings.Count(list, "\n:tw-"), strings.Count(list, "\n-A tw-")+len(regexp.MustCompile(`(?m)^-A [A-Z]+ -j tw-`).FindAllString(list, -1))
				if is.Chains != chains || is.Rules != rules {
					t.Errorf("%s, table %s of IPv%d: %d chains, %d rules; there are %d, %d", when, is.Table, is.Family, is.Chains, is.Rules, chains, rules)
				}
			}
			names := k.Run("ipset", "list", "-n")
			for f, n := range all.Sets {
				if there := strings.Count("\n"+names, fmt.Sprintf("\ntw%d-", f)); n != there {
					t.Errorf("%s: %d sets of IPv%d, there are %d", when, n, f, there)
				}
			}
			return all
		}
		if got := sizes("at first"); len(got.Tables) != 0 {
			t.Errorf("before anything is done: %+v", got)
		}
		d.apply(filled())
		all := sizes("after the first turn")
		if len(all.Tables) != 8 || all.Sets[intent.IPv4] == 0 || all.Sets[intent.IPv6] == 0 {
			t.Errorf("sizes are %+v", all)
		}
		d.apply(intent.Batch{Removed: []intent.Key{pod, gnp, np, kns}})
		if less := sizes("without an endpoint"); less.Tables[3].Chains >= all.Tables[3].Chains || less.Sets[intent.IPv4] >= all.Sets[intent.IPv4] {
			t.Errorf("of less there is %+v, was %+v", less, all)
		}
	})
}

func TestWhatOthersDoToIptablesIsUndone(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		d.apply(filled())
		want := d.everything()
		ipt, set := "iptables-"+k.backend, setOf("s:frontend", intent.SetAddrs, intent.IPv4).Name
		for _, tt := range []struct {
			name string
			do   string
		}{
			{"a table is flushed", ipt + " -F"},
			{"a chain is flushed", ipt + " -t raw -F tw-prerouting"},
			{"a chain loses a rule", ipt + " -D tw-forward 2"},
			{"a chain has a rule more", ipt + " -I tw-forward -j ACCEPT"},
			{"a rule is replaced by another", ipt + " -R tw-forward 1 -j ACCEPT"},
			{"our call is no longer there", ipt + " -D FORWARD -j tw-forward"},
			{"our call is no longer the first", ipt + " -D FORWARD -j tw-forward; " + ipt + " -A FORWARD -j ACCEPT; " + ipt + " -A FORWARD -j tw-forward"},
			{"our call is there twice", ipt + " -A FORWARD -j tw-forward"},
			{"a chain of ours that nobody knows", ipt + " -N tw-AAAAAAAAAAAAAAAAAAAAAA"},
			{"in IPv6", "ip6tables-" + k.backend + " -F"},
			{"a set is flushed", "ipset flush " + set},
			{"a set has a member more", "ipset add " + set + " 192.0.2.1"},
			{"a set that nobody knows", "ipset create tw4-net-AAAAAAAAAAAAAAAAAAAAAA hash:net"},
		} {
			k.Run("sh", "-c", tt.do)
			if err := d.Resync(t.Context()); err != nil {
				t.Fatal(err)
			}
			d.apply()
			got := strings.Replace(d.everything(), "-A FORWARD -j ACCEPT\n", "", 1)
			if got != want {
				t.Errorf("%s: there is\n%s\nand not\n%s", tt.name, got, want)
			}
			found := d.Repairs()
			if known := !strings.Contains(tt.name, "nobody knows"); known != (len(found) > 0) || known != d.Lapsed() {
				t.Errorf("%s: repairs are %v", tt.name, found)
			}
			k.Run("sh", "-c", ipt+" -D FORWARD -j ACCEPT 2>/dev/null || true")
		}
	})
}

// TestWhatHasANameLikeOursStays: a set, and a chain that another refers to.
func TestWhatHasANameLikeOursStays(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		ipt := "iptables-" + k.backend
		for _, set := range []string{"twitch", "tw4", "tw4-nets"} {
			k.Run("ipset", "create", set, "hash:net")
			k.Run("ipset", "add", set, "192.0.2.0/24")
		}
		k.Run(ipt, "-N", "tw-itch")
		k.Run(ipt, "-A", "tw-itch", "-s", "192.0.2.9", "-j", "DROP")
		k.Run(ipt, "-A", "FORWARD", "-j", "tw-itch")
		d := newDriven(t, k)
		theirs := d.everything()
		stays := func(after string) {
			t.Helper()
			is := d.everything()
			for line := range strings.Lines(theirs) {
				if !strings.Contains(is, strings.TrimSpace(line)) {
					t.Errorf("%s: %q is gone", after, line)
				}
			}
		}
		d.apply(filled())
		stays("apply")
		if err := d.Clear(t.Context()); err != nil {
			t.Fatal(err)
		}
		stays("clear")
		if err := d.ClearSets(t.Context()); err != nil {
			t.Fatal(err)
		}
		stays("the sets are cleared")
	})
}

// TestAnEventIsOfTables alone: sets may be large, and a change of members that is under way is no repair.
func TestAnEventIsOfTables(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		d.apply(filled())
		read := d.setReads
		d.drift.notified = true
		d.apply(intent.Batch{Members: []intent.MemberDelta{{Set: "s:frontend", Added: members(0, "10.65.0.8/32")}}})
		if got := d.Repairs(); d.setReads != read || len(got) > 0 || d.Lapsed() {
			t.Errorf("sets were read %d times, repairs are %v", d.setReads-read, got)
		}
		if !strings.Contains(d.everything(), "10.65.0.8") {
			t.Error("the member is not there")
		}
	})
}

// TestWhatIsRefusedSinceOthersChangedSetsIsTriedAgain: of tables alone there are events, and a rule or a member for which others destroyed the set closes nobody.
func TestWhatIsRefusedSinceOthersChangedSetsIsTriedAgain(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		set := setOf("s:frontend", intent.SetAddrs, intent.IPv4).Name
		flush := ""
		for _, command := range []string{"iptables-", "ip6tables-"} {
			flush += fmt.Sprintf("for t in raw mangle nat filter; do %s%s -w 10 -t $t -F; done; ", command, k.backend)
		}
		for _, tt := range []struct {
			name, do string
			batch    intent.Batch
		}{
			{"tables are flushed and sets destroyed", flush + "ipset destroy", intent.Batch{}},
			{"a set is destroyed, and has a new member", flush + "ipset destroy " + set, intent.Batch{Members: []intent.MemberDelta{{Set: "s:frontend", Added: members(0, "10.65.0.8/32")}}}},
		} {
			d := newDriven(t, k)
			d.apply(filled(), tt.batch)
			want := d.everything()
			d = d.again()
			d.apply(filled())
			k.Run("sh", "-c", tt.do)
			d.drift.notified = true
			for _, o := range d.apply(tt.batch) {
				if o.Err != nil {
					t.Errorf("%s: %v: %v", tt.name, o.Key, o.Err)
				}
			}
			if got := d.everything(); got != want {
				t.Errorf("%s: there is\n%s\nand not\n%s", tt.name, got, want)
			}
			if len(d.Repairs()) == 0 || !d.Lapsed() {
				t.Errorf("%s: no repair is reported", tt.name)
			}
		}
	})
}

func TestWhatAnEarlierAgentLeftDecidesUntilAllIsKnown(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		early := intent.Batch{Host: &intent.HostSettings{}}
		fresh := newDriven(t, k)
		fresh.apply(early)
		closed := fresh.everything()
		if !strings.Contains(closed, "-A FORWARD -j tw-forward\n") || !strings.Contains(closed, "-j DROP") {
			t.Errorf("a node that was never in force is not closed:\n%s", closed)
		}
		d := fresh.again()
		d.apply(filled())
		want := d.everything()
		next := d.again()
		if next.apply(early); next.everything() != want {
			t.Errorf("before all is known, there is\n%s\nand not\n%s", next.everything(), want)
		}
		k.Run("iptables-"+k.backend, "-F", "FORWARD")
		next = d.again()
		if next.apply(early); next.everything() != want {
			t.Errorf("a call that is missing is not made early:\n%s", next.everything())
		}
	})
}

func TestWhatAProgramRefusesClosesItsOwnerAlone(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		d.fails = func(text string) error {
			for i, line := range strings.Split(text, "\n") {
				if strings.Contains(line, "NFLOG") {
					return fmt.Errorf("iptables-restore: line %d failed", i+1)
				}
			}
			return nil
		}
		b := filled()
		logs := intent.PolicyID{Kind: "GlobalNetworkPolicy", Name: "logs"}
		b.Policies = append(b.Policies, intent.Policy{ID: logs, Ingress: []intent.Rule{{Action: intent.Log}, {Action: intent.Allow}}})
		other := intent.EndpointID{Namespace: "prod", Name: "other"}
		b.Endpoints = append(b.Endpoints, intent.Endpoint{ID: other, Link: "cali7", Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{logs}}}})})
		wrong := map[intent.Key]error{}
		for _, o := range d.apply(b) {
			if o.Err != nil {
				wrong[o.Key] = o.Err
			}
		}
		if len(wrong) == 0 || wrong[logs] == nil || wrong[pod] != nil {
			t.Errorf("not in force are %v", wrong)
		}
		if text := d.everything(); !strings.Contains(text, "-A tw-closed-src -i cali7") {
			t.Errorf("the endpoint whose policy is refused is not closed:\n%s", text)
		}
		d.fails = nil
		d.Retry()
		for _, o := range d.apply() {
			if o.Err != nil {
				t.Errorf("%v: %v", o.Key, o.Err)
			}
		}
	})
}

func TestElementsAreReadInTheFormInWhichIpsetPrintsThem(t *testing.T) {
	for text, want := range map[string]string{
		"10.0.0.1": "10.0.0.1/32", "10.0.0.0/8": "10.0.0.0/8", "fd00::1": "fd00::1/128", "fd00::/16": "fd00::/16",
		"10.0.0.1,tcp:80": "10.0.0.1,6:80", "fd00::1,udplite:80": "fd00::1,136:80",
	} {
		if got := savedElement(text); got != want {
			t.Errorf("%s is %s", text, got)
		}
	}
	for _, text := range []string{"10.0.0.1,icmp:8/0", "eth0", "10.0.0.1,tcp:http"} {
		if savedElement(text) != text {
			t.Errorf("%s is taken for ours", text)
		}
	}
}

// hostOn is a batch with one more host endpoint, on an interface.
func hostOn(link string) intent.Batch {
	b := filled()
	b.Endpoints = append(b.Endpoints, intent.Endpoint{
		ID: intent.EndpointID{Kind: intent.Host, Name: "odd"}, Link: link, Group: intent.GroupOf(intent.Stages{Normal: []intent.Tier{{Name: "default", Default: intent.Deny, Ingress: []intent.PolicyID{gnp}}}}),
	})
	return b
}

// TestInterfacesHaveAnyName that the kernel gives them; one that it does not give is nobody's.
func TestInterfacesHaveAnyName(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		for link, exists := range map[string]bool{"-x": true, `eth"0`: true, "a'b": true, `a\b`: true, "!x": true, "a+b": true, "#1": true, "a b": false, "a/b": false, "a:b": false} {
			d := newDriven(t, k)
			for _, o := range d.apply(hostOn(link)) {
				if o.Err != nil {
					t.Errorf("%q: %v: %v", link, o.Key, o.Err)
				}
			}
			if !exists {
				continue
			}
			if list := k.Run("iptables-"+k.backend, "-vnL"); !strings.Contains(list, " "+link+" ") {
				t.Errorf("no rule has interface %q:\n%s", link, list)
			}
		}
	})
}

// TestANameWithoutAFormStopsNothingElse: the stage in which it should be asked for denies, and says why; all else goes on.
func TestANameWithoutAFormStopsNothingElse(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		d := newDriven(t, k)
		reported := false
		for _, o := range d.apply(hostOn("eth+")) {
			reported = reported || o.Err != nil && strings.Contains(o.Err.Error(), "eth+")
			if o.Key == intent.Key(pod) && o.Err != nil {
				t.Errorf("a workload is not in force: %v", o.Err)
			}
		}
		if text := d.everything(); !reported || !strings.Contains(text, "-i cali1") {
			t.Errorf("it is reported: %v\n%s", reported, text)
		}
		for _, o := range d.apply(intent.Batch{Removed: []intent.Key{intent.EndpointID{Kind: intent.Host, Name: "odd"}}}) {
			if o.Err != nil {
				t.Errorf("when it has gone: %v: %v", o.Key, o.Err)
			}
		}
	})
}
