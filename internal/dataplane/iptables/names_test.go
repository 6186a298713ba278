package iptables

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/intent"
)

// upstreamNames are the chains and sets that upstream's agent always makes, those of endpoints and policies by how they begin.
const upstreamNames = `cali-PREROUTING cali-INPUT cali-FORWARD cali-OUTPUT cali-POSTROUTING cali-wl-to-host cali-from-wl-dispatch cali-to-wl-dispatch
	cali-from-hep-forward cali-to-hep-forward cali-failsafe-in cali-failsafe-out cali-cidr-block cali-nat-outgoing cali-fip-dnat cali-fip-snat
	cali-rpf-skip cali-set-endpoint-mark cali-from-endpoint-mark cali-wireguard-incoming-mark cali-egress-dscp
	cali-tw-* cali-fw-* cali-th-* cali-fh-* cali-thfw-* cali-fhfw-* cali-sm-* cali-pi-* cali-po-* cali-pri-* cali-pro-* cali-gi-* cali-go-*
	cali40network-ip-pools cali40all-ipam-pools cali40masq-ipam-pools cali40all-hosts-net cali40all-vxlan-net cali40this-host cali40dscp-src-net
	cali40no-flow-offload cali40all-istio-weps`

var quoted = regexp.MustCompile("`([^`]+)`")

func quotedIn(cell string) (out []string) {
	for _, m := range quoted.FindAllStringSubmatch(cell, -1) {
		out = append(out, m[1])
	}
	return out
}

// namedRow is a row of the table of docs/dataplanes.md.
type namedRow struct {
	upstream, nft, iptables []string
	hashed                  bool   // the chains of iptables have no name that could be written there
	why                     string // what is decided there or, if nothing is, why
}

func readNames(t *testing.T) (out []namedRow) {
	t.Helper()
	inside := false
	for line := range strings.Lines(read(t, "../../../docs/dataplanes.md")) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		switch {
		case strings.HasPrefix(line, "| upstream's |"):
			inside = true
		case !strings.HasPrefix(line, "|"):
			inside = false
		case inside && len(cells) == 4:
			r := namedRow{quotedIn(cells[0]), quotedIn(cells[1]), quotedIn(cells[2]), cells[2] == "hashed", strings.Trim(cells[3], " |")}
			if len(r.nft) == 0 && cells[1] != "none" || len(r.iptables) == 0 && !r.hashed && cells[2] != "none" {
				t.Errorf("%s: neither a name nor a word for none: %s, %s", cells[0], cells[1], cells[2])
			}
			out = append(out, r)
		}
	}
	return out
}

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// isOf reports whether a name of iptables is that of a chain or set of nftables.
func isOf(name, nft string) bool {
	set := strings.TrimPrefix(strings.TrimSuffix(nft, "-*"), "hosts4-")
	return name == ChainName(nft) || name == setOf(intent.SetID(set), intent.SetAddrs, intent.IPv4).Name
}

// TestUpstreamsNamesAreWhereTheTableSays compares the table for people who know upstream's chains with what both dataplanes make.
func TestUpstreamsNamesAreWhereTheTableSays(t *testing.T) {
	nft := read(t, "../nft/testdata/table.txt")
	texts := read(t, "testdata/node.v4.txt")
	hash := regexp.MustCompile(`^tw(4-net)?-[\w-]{22}$`)
	var named []string
	for _, r := range readNames(t) {
		named = append(named, r.upstream...)
		what := strings.Join(r.upstream, ", ")
		if none := len(r.nft) == 0; none != (len(r.iptables) == 0 && !r.hashed) || none && r.why == "" {
			t.Errorf("%s: in one of the two alone, or without why: %+v", what, r)
		}
		for _, name := range r.nft {
			begin, any := strings.CutSuffix(name, "*")
			if !any {
				begin += " "
			}
			if !strings.Contains(nft, "\nchain "+begin) && !strings.Contains(nft, "\nset "+begin) {
				t.Errorf("%s: nftables has no %s", what, name)
			}
			if r.hashed && !any {
				t.Errorf("%s: %s has a name in iptables, %s", what, name, ChainName(name))
			} else if !r.hashed && !slices.ContainsFunc(r.iptables, func(n string) bool { return !hash.MatchString(n) || isOf(n, name) }) {
				t.Errorf("%s: the table has no name in iptables of %s, which is %s", what, name, ChainName(name))
			}
		}
		for _, name := range r.iptables {
			if !strings.Contains(texts, "\n:"+name+" ") && !strings.Contains(texts, "--match-set "+name+" ") {
				t.Errorf("%s: iptables has no %s", what, name)
			}
			if hash.MatchString(name) && !slices.ContainsFunc(r.nft, func(n string) bool { return isOf(name, n) }) {
				t.Errorf("%s: %s is the name of none of %v", what, name, r.nft)
			}
		}
	}
	for name := range strings.FieldsSeq(upstreamNames) {
		if n := len(slices.DeleteFunc(slices.Clone(named), func(is string) bool { return is != name })); n != 1 {
			t.Errorf("%s is in the table %d times", name, n)
		}
	}
}
