package lab

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
)

// act is what somebody else does on a host. Its script is run there and in a namespace of its own without Twill, so that both have the same rules of others;
// what it does to ours fails in the latter. $I and $J are iptables of IPv4 and IPv6, of the host's backend; $CHAIN and $SET are one of our chains of table
// filter and one of our sets, $ADDR the address of who is denied, and $HELD for how many seconds a lock is held.
type act struct {
	name, script string
	after        string // run once what the act did is repaired
	sets         bool   // nobody announces changes of sets: they are found when they are read back
}

// Rulesets of others, as their programs load them.
const (
	likeKubeProxy = `*nat
:KUBE-SERVICES - [0:0]
:KUBE-POSTROUTING - [0:0]
:KUBE-MARK-MASQ - [0:0]
-A PREROUTING -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A OUTPUT -m comment --comment "kubernetes service portals" -j KUBE-SERVICES
-A POSTROUTING -m comment --comment "kubernetes postrouting rules" -j KUBE-POSTROUTING
-A KUBE-MARK-MASQ -j MARK --set-xmark 0x4000/0x4000
-A KUBE-POSTROUTING -m mark ! --mark 0x4000/0x4000 -j RETURN
-A KUBE-POSTROUTING -j MASQUERADE --random-fully
COMMIT
*filter
:KUBE-FORWARD - [0:0]
:KUBE-FIREWALL - [0:0]
-A INPUT -j KUBE-FIREWALL
-A FORWARD -m comment --comment "kubernetes forwarding rules" -j KUBE-FORWARD
-A KUBE-FORWARD -m mark --mark 0x4000/0x4000 -j ACCEPT
-A KUBE-FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
COMMIT
`
	likeDocker = `*nat
:DOCKER - [0:0]
-A PREROUTING -m addrtype --dst-type LOCAL -j DOCKER
-A POSTROUTING -o docker0 -m addrtype --src-type LOCAL -j MASQUERADE
-A DOCKER -i docker0 -j RETURN
COMMIT
*filter
:FORWARD DROP [0:0]
:DOCKER - [0:0]
:DOCKER-USER - [0:0]
-A FORWARD -j DOCKER-USER
-A FORWARD -o docker0 -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -o docker0 -j DOCKER
-A FORWARD -i docker0 ! -o docker0 -j ACCEPT
-A DOCKER-USER -j RETURN
COMMIT
`
	likeFirewalld = `*raw
:PREROUTING_direct - [0:0]
-A PREROUTING -j PREROUTING_direct
COMMIT
*mangle
:PREROUTING_direct - [0:0]
:FORWARD_direct - [0:0]
-A PREROUTING -j PREROUTING_direct
-A FORWARD -j FORWARD_direct
COMMIT
*nat
:POST_public - [0:0]
-A POSTROUTING -o wan9 -j POST_public
-A POST_public -j MASQUERADE
COMMIT
*filter
:IN_public - [0:0]
:FWD_public - [0:0]
-A INPUT -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A INPUT -i wan9 -j IN_public
-A FORWARD -m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT
-A FORWARD -i wan9 -j FWD_public
-A IN_public -p tcp -m tcp --dport 22 -j ACCEPT
-A FWD_public -j REJECT
COMMIT
`
)

// load is a script that gives a text to iptables-restore, of both families.
func load(text, flags string) string {
	return fmt.Sprintf("for r in $RESTORE; do $r %s <<'END'\n%sEND\ndone", flags, text)
}

const othersSet = "ipset -exist create others-blocked hash:ip; ipset -exist add others-blocked 198.51.100.7; $I -C INPUT -m set --match-set others-blocked src -j DROP 2>/dev/null || $I -A INPUT -m set --match-set others-blocked src -j DROP"

// foreignChains are those that the rulesets make.
var foreignChains = "KUBE-SERVICES KUBE-POSTROUTING KUBE-MARK-MASQ KUBE-FORWARD KUBE-FIREWALL DOCKER DOCKER-USER PREROUTING_direct FORWARD_direct POST_public IN_public FWD_public"

func acts() []act {
	both := func(script string) string { // the same of both families
		return script + "; " + strings.ReplaceAll(script, "$I ", "$J ")
	}
	return []act{
		{name: "a new ruleset, as kube-proxy's", script: load(likeKubeProxy, "")},
		{name: "a new ruleset, as Docker's", script: load(likeDocker, "")},
		{name: "a new ruleset, as firewalld's", script: load(likeFirewalld, "")},
		{name: "rules are added, as kube-proxy adds them", script: load(strings.ReplaceAll(likeKubeProxy, "-A FORWARD", "-I FORWARD"), "--noflush")},
		{name: "table filter is flushed", script: both("$I -F")},
		{name: "table nat is flushed", script: both("$I -t nat -F")},
		{name: "tables mangle and raw are flushed", script: both("$I -t mangle -F; $I -t raw -F")},
		{name: "all is flushed, and chains deleted", script: both("for t in filter nat mangle raw; do $I -t $t -F; $I -t $t -X; for c in " + foreignChains + "; do $I -t $t -X $c; done; done")},
		{name: "a table is deleted by nft", script: "nft delete table ip filter; nft delete table ip6 raw"},
		{name: "the ruleset is flushed by nft", script: "nft flush ruleset"},
		{name: "a rule comes first and accepts", script: both("$I -I FORWARD -j ACCEPT"), after: both("$I -D FORWARD -j ACCEPT")},
		{name: "a rule comes first in table mangle", script: both("$I -t mangle -I PREROUTING -j ACCEPT"), after: both("$I -t mangle -D PREROUTING -j ACCEPT")},
		{name: "a rule comes into a chain of ours", script: both("$I -I $CHAIN -j ACCEPT")},
		{name: "a rule of ours is another", script: both("$I -R $CHAIN 1 -j RETURN")},
		{name: "a rule of ours is deleted", script: both("$I -D $CHAIN 1")},
		{name: "our call is deleted", script: both("$I -D FORWARD -j tw-forward; $I -D INPUT -j tw-input")},
		{name: "our call is there twice", script: both("$I -A FORWARD -j tw-forward")},
		{name: "a chain of ours is flushed", script: both("$I -F $CHAIN")},
		{name: "a chain of ours is deleted with its calls", script: both("$I -D FORWARD -j tw-forward; $I -F tw-forward; $I -X tw-forward")},
		{name: "the policy of FORWARD is DROP", script: both("$I -P FORWARD DROP")},
		{name: "the policy of FORWARD is ACCEPT", script: both("$I -P FORWARD ACCEPT")},
		{name: "the lock is held", script: `[ "$ALONE" ] && exit; flock $XTABLES_LOCKFILE sleep $HELD >/dev/null 2>&1 & while flock -n $XTABLES_LOCKFILE true; do :; done`},
		{name: "others have a set", script: othersSet},
		{name: "a set of ours is flushed", script: "ipset flush $SET", sets: true},
		{name: "who is denied is in a set of ours", script: "ipset add $SET $ADDR", sets: true},
		{name: "all sets are flushed", script: "ipset flush", sets: true},
		{name: "tables are flushed and all sets destroyed", script: both("for t in filter nat mangle raw; do $I -t $t -F; done") + "; ipset destroy; for s in $SETS others-blocked; do ipset destroy $s; done", sets: true},
	}
}

// texts are what is in the tables and sets of a namespace: what is ours, and what is of others, in a form in which equal things are equal texts.
type texts struct{ ours, others string }

var prefixOfReports = regexp.MustCompile(`--nflog-prefix +("[^"]*"|\S+)`)

// sorted takes apart what iptables-save and ipset save print.
func sorted(tables [2]string, sets string) (t texts, chains []string) {
	our, theirs := map[string][]string{}, map[string][]string{}
	for i, text := range tables {
		table, begun := "", map[string]bool{}
		for line := range strings.Lines(text) {
			line = strings.TrimSpace(line)
			name, rest, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(line, "-A "), ":"), " ")
			at := fmt.Sprintf("IPv%d %s ", 4+2*i, table)
			switch {
			case strings.HasPrefix(line, "*"):
				table, begun = line[1:], map[string]bool{}
			case strings.HasPrefix(line, ":tw-"):
				our[at+name] = append(our[at+name], "")
				if table == "filter" && i == 0 {
					chains = append(chains, name)
				}
			case strings.HasPrefix(line, ":"):
				if policy, _, _ := strings.Cut(rest, " "); policy != "ACCEPT" {
					theirs[at+name] = append(theirs[at+name], policy)
				}
			case strings.HasPrefix(line, "-A tw-"):
				our[at+name] = append(our[at+name], prefixOfReports.ReplaceAllString(rest, "--nflog-prefix"))
			case strings.HasPrefix(line, "-A ") && strings.Contains(rest, "-j tw-"):
				our[at+name] = append(our[at+name], fmt.Sprintf("%s first=%v", rest, !begun[name]))
				begun[name] = true
			case strings.HasPrefix(line, "-A "):
				theirs[at+name] = append(theirs[at+name], rest)
				begun[name] = true
			}
		}
	}
	for line := range strings.Lines(sets) {
		w := strings.Fields(line)
		if len(w) < 3 {
			continue
		}
		into, rest := theirs, strings.Join(w[2:min(len(w), 5)], " ")
		if strings.HasPrefix(w[1], "tw") {
			into = our
		}
		into["set "+w[1]] = append(into["set "+w[1]], w[0]+" "+rest)
	}
	return texts{joined(our), joined(theirs)}, chains
}

// one is one of them.
func one(rng *rand.Rand, of []string) string {
	if len(of) == 0 {
		return "nothing"
	}
	return of[rng.IntN(len(of))]
}
