package iptables

import (
	"bytes"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/dataplane/rules"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel/machinetest"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestMain has a lock of our own for all tests: iptables' is one for all of the machine, and of its namespaces.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "xtables")
	if err == nil {
		err = os.Setenv("XTABLES_LOCKFILE", filepath.Join(dir, "lock"))
	}
	if err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(dir)
	os.Exit(code)
}

// tools are those of one backend, in a namespace of its own.
type tools struct {
	*netnstest.NS
	backend string
}

// eachBackend runs a test with the tools of each: iptables-nft writes nftables, iptables-legacy the kernel's older tables.
func eachBackend(t *testing.T, test func(*testing.T, tools)) {
	for _, b := range []string{"nft", "legacy"} {
		t.Run(b, func(t *testing.T) {
			k := tools{netnstest.New(t), b}
			for _, program := range []string{"ipset", k.program(4, "restore"), k.program(6, "restore"), k.program(4, "save"), k.program(6, "save")} {
				machinetest.Program(t, program)
			}
			test(t, k)
		})
	}
}

func (k tools) program(f intent.Family, verb string) string {
	name := map[intent.Family]string{intent.IPv4: "iptables", intent.IPv6: "ip6tables"}[f]
	return fmt.Sprintf("%s-%s-%s", name, k.backend, verb)
}

// feed gives a program a text; its failure, or any complaint of it, fails the test.
func (k tools) feed(t *testing.T, text, program string, args ...string) {
	t.Helper()
	cmd := exec.Command(program, args...)
	var out bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(text), &out, &out
	err := k.Handle().Start(cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil || out.Len() > 0 {
		t.Fatalf("%s %s: %v\n%s\nof\n%s", program, strings.Join(args, " "), err, &out, text)
	}
}

func (k tools) restore(t *testing.T, f intent.Family, text string) {
	t.Helper()
	k.feed(t, text, k.program(f, "restore"), "--noflush", "-w", "60")
}

func (k tools) makeSets(t *testing.T, sets []Set) {
	t.Helper()
	var text strings.Builder
	for _, s := range sets {
		text.WriteString(s.Create() + "\n")
	}
	k.feed(t, text.String(), "ipset", "-exist", "restore")
}

// shape is the chains and rules of a table, each chain with the number of its rules.
func shape(text string) map[string]int {
	n := map[string]int{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, ":tw-"):
			n[words[0][1:]] += 0
		case strings.HasPrefix(line, "-A tw-"):
			n[words[1]]++
		}
	}
	return n
}

func TestBothBackendsTakeTheGoldenTexts(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		for _, f := range families {
			for _, w := range worlds {
				table := w.table
				if table == "" {
					table = Filter
				}
				text := w.render(t, f)
				k.makeSets(t, text.Sets)
				before := shape(k.Run(k.program(f, "save"), "-t", string(table)))
				for range 2 { // the second time everything exists already
					k.restore(t, f, text.Restore)
				}
				saved := k.Run(k.program(f, "save"), "-t", string(table))
				got, is := shape(saved), parseSaved(saved)[table].chains
				for name, want := range wantedOf(text).chains {
					if !alike(is[name], want) {
						t.Errorf("%s, IPv%d: chain %s is\n%s\nwhich is not alike to\n%s", w.name, f, name, strings.Join(is[name], "\n"), want)
					}
				}
				for name := range before {
					if _, ok := got[name]; !ok {
						t.Errorf("%s, IPv%d: chain %s of another text is gone", w.name, f, name)
					}
				}
				for line := range strings.Lines(text.Restore) {
					if _, prefix, ok := strings.Cut(line, "--nflog-prefix "); ok && !strings.Contains(saved, strings.TrimSpace(prefix)) {
						t.Errorf("%s, IPv%d: prefix %s is cut", w.name, f, prefix)
					}
				}
			}
		}
	})
}

func TestLongListsFitTheLinesThatTheToolReads(t *testing.T) {
	var nets []netip.Prefix
	for i := range 300 {
		nets = append(nets, netip.PrefixFrom(netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i)}), 24))
	}
	terms := []rules.Term{proto(6), onPorts(rules.Src, evens(2000)), onPorts(rules.Dst, evens(2000)), {Kind: rules.Nets, Nets: nets}}
	for _, side := range []rules.Side{rules.Src, rules.Dst} {
		for _, n := range []int{maxInLine * maxPorts, 2000} {
			terms = append(terms, isNot(onPorts(side, evens(n))))
		}
	}
	text, err := Renderer{Family: intent.IPv4}.Render([]rules.Chain{{Name: "long", Rules: []rules.Rule{{Terms: terms}}}})
	if err != nil {
		t.Fatal(err)
	}
	eachBackend(t, func(t *testing.T, k tools) { k.restore(t, intent.IPv4, text.Restore) })
}

func TestIpsetTakesTheGoldenSets(t *testing.T) {
	eachBackend(t, func(t *testing.T, k tools) {
		for _, f := range families {
			text := RestoreSets(f, selections)
			k.feed(t, text, "ipset", "restore")
			if got, want := strings.Count(k.Run("ipset", "save"), "\nadd tw"+fmt.Sprint(f)), strings.Count(text, "\nadd "); got != want {
				t.Errorf("IPv%d: %d members of %d", f, got, want)
			}
		}
	})
}
