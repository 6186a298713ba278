package script

import (
	"errors"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

const begin = "# Title.\nhosts h1 h2\nworkload h1 web 10.65.1.5\nworkload h2 client 10.65.2.7\n"

func TestALineIsReadAsItsAction(t *testing.T) {
	for _, tt := range []struct {
		line string
		want Action
	}{
		{"link h1 h2", Link{"h1", "h2", "h1-h2"}},
		{"link h1 h2 second # comment", Link{"h1", "h2", "second"}},
		{"workload h1 db 10.65.1.6 fd65::6 app=db ns=prod profile=a,b port=sql:5432 bare", Workload{
			Host: "h1", Namespace: "prod", Name: "db", V4: netip.MustParseAddr("10.65.1.6"), V6: netip.MustParseAddr("fd65::6"),
			Labels: map[string]string{"app": "db"}, Profiles: []string{"a", "b"}, PortName: "sql", Port: 5432, Bare: true,
		}},
		{"reach client web tcp/80", Reach{false, Flow{"client", "web", "tcp", 80, true, true}}},
		{"! reach h1 default/web udp/53 v6", Reach{true, Flow{"h1", "web", "udp", 53, false, true}}},
		{"reach client web icmp v4", Reach{false, Flow{"client", "web", "icmp", 0, true, false}}},
		{"stream s client web udp/9", Stream{"s", Flow{"client", "web", "udp", 9, true, false}}},
		{"! apply a.yaml b.yaml", Apply{true, []string{"a.yaml", "b.yaml"}}},
		{"delete networkpolicy x -n prod", Delete{false, []string{"networkpolicy", "x", "-n", "prod"}}},
		{"put /calico/x v", Put{"/calico/x", "v"}},
		{"delete-key /calico/x", Put{"/calico/x", ""}},
		{"restart h1", Restart{"h1", "agent"}},
		{"restart store", Restart{"store", "agent"}},
		{"kill h1 agent -9", Kill{"h1", "agent", true}},
		{"kill h1 bgp", Kill{"h1", "bgp", false}},
		{"cut h1 store", Cut{Host: "h1"}},
		{"heal link h2", Cut{Heal: true, Link: "h2"}},
		{"cut link h2 silently", Cut{Link: "h2", Silent: true}},
		{"kill h1 bfd", Kill{"h1", "bfd", false}},
		{"busy 1500ms", Busy{1500 * time.Millisecond}},
		{"kill h1 confd -9", Kill{"h1", "confd", true}},
		{"bgp h1 bird", BGP{"h1", "bird"}},
		{"compact store", Compact{}},
		{"empty store", Empty{}},
		{"stop store", Power{false, "store", nil}},
		{"start h1 IP=autodetect IP6=", Power{true, "h1", []string{"IP=autodetect", "IP6="}}},
		{`exec ! h1 sh -c 'echo "a  b" # no comment'`, Exec{true, "h1", []string{"sh", "-c", `echo "a  b" # no comment`}}},
		{`exec h1 echo "a \"b\" \\" x''y`, Exec{false, "h1", []string{"echo", `a "b" \`, "xy"}}},
		{`wait metric h1 twill_repairs_total{part=nft,cause="event"} >= 1`, WaitMetric{
			"h1", "twill_repairs_total",
			map[string]string{"part": "nft", "cause": "event"},
			Compare{">=", 1},
		}},
		{"wait exec ! web true", WaitExec{Exec: Exec{true, "web", []string{"true"}}}},
		{"capture h1 eth0 c tcp/80", Capture{"h1", "eth0", "c", "tcp", 80}},
		{"capture web eth0 c icmp", Capture{"web", "eth0", "c", "icmp", 0}},
		{"capture web eth0 c ipip", Capture{"web", "eth0", "c", "ipip", 0}},
	} {
		s, err := Parse("f.txt", begin+tt.line+"\n")
		if err != nil {
			t.Errorf("%s: %v", tt.line, err)
			continue
		}
		if got := s.Steps[len(s.Steps)-1]; !reflect.DeepEqual(got.Do, tt.want) || got.Line != 5 {
			t.Errorf("%s:\n got %#v in line %d\nwant %#v", tt.line, got.Do, got.Line, tt.want)
		}
	}
}

func TestWhatFollowsWaitExecIsAwaitedWithIt(t *testing.T) {
	s, err := Parse("f.txt", begin+"wait exec h1 true\n\n! stdout a\n# A comment.\nstderr b\nexec h1 true\nstdout c\n")
	if err != nil {
		t.Fatal(err)
	}
	var awaited []string
	for _, m := range s.Steps[len(s.Steps)-5].Do.(WaitExec).Writes {
		awaited = append(awaited, m.String())
	}
	if want := []string{"! stdout a", "stderr b"}; !slices.Equal(awaited, want) {
		t.Errorf("it waits for %q, want %q", awaited, want)
	}
}

func TestAnErrorSaysWhereAndWhatWasExpected(t *testing.T) {
	for _, tt := range []struct{ line, want string }{
		{"raech client web tcp/80", `5:1: no command "raech"; want one of apply,`},
		{"reach client wbe tcp/80", `5:14: no host or workload "wbe" so far; there are: client, h1, h2, web`},
		{"reach client web tcp/0", `5:18: "tcp/0" has no port; want a number from 1 to 65535`},
		{"reach client web 80", `5:18: "80": want tcp/PORT, udp/PORT or icmp`},
		{"reach client web icmp/8", `5:18: "icmp/8": want`},
		{"reach client web", `5:17: protocol and port is missing; want: [!] reach SRC DST`},
		{"  reach client web tcp/80 v5", `5:27: "v5" is too much; want: [!] reach`},
		{"! hosts h3", `5:1: hosts takes no ! before it`},
		{"hosts h3", `5:1: hosts stand in line 2 already`},
		{"workload h3 x 10.65.1.1", `5:10: no host "h3" so far; there are: h1, h2`},
		{"workload h1 web 10.65.1.1", `5:13: "web" is a workload already`},
		{"workload h1 x", `5:14: an IPv4 address is missing`},
		{"workload h1 x 10.65.1", `5:15: "10.65.1" is no address`},
		{"workload h1 x fd65::1", `5:15: "fd65::1": want an IPv4 address first`},
		{"workload h1 x 10.65.1.1 app", `5:25: "app": want bare, ns=`},
		{"link h1 h1", `5:1: h1 and h1 are one host`},
		{"stream check s lossless", `5:14: no stream "s" so far`},
		{"exec h1 'echo", `5:9: this quote is never closed; want another '`},
		{"stdout (", `5:8: error parsing regexp`},
		{"put /registry/x f", `5:5: "/registry/x" is no key`},
		{"wait metric h1 up{a} >= 1", `5:16: "a" in "up{a}": want LABEL=VALUE`},
		{"wait metric h1 up => 1", `5:19: "=>" is no comparison; want ==`},
		{"wait for h1", `5:6: "for" is no condition; want agent,`},
		{"busy long", `5:6: "long" is no time span; want one such as 5s`},
		{"busy -1s", `5:6: "-1s" is no time span; want one such as 5s`},
		{"heal link h2 silently", `5:14: "silently" is too much; want: heal HOST store | heal link NAME`},
		{"cut h1 stor", `5:8: "stor" is no end; want store`},
		{"-- a --\n-- a --", `6:4: a second document a`},
	} {
		_, err := Parse("f.txt", begin+tt.line+"\n")
		var e *Error
		if !errors.As(err, &e) || !strings.HasPrefix(err.Error(), "f.txt:"+tt.want) {
			t.Errorf("%s:\n got %v\nwant f.txt:%s…", tt.line, err, tt.want)
		}
	}
}

func TestTheReferenceHasEveryCommand(t *testing.T) {
	text, err := os.ReadFile("../../../docs/lab.md")
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range verbs {
		if !strings.Contains(string(text), "\n"+v.usage+"\n") {
			t.Errorf("docs/lab.md has not the usage of %s: %s", name, v.usage)
		}
	}
}

func TestTheFirstCommandMakesTheHosts(t *testing.T) {
	for text, want := range map[string]string{
		"reach a b tcp/80\n": "f.txt:1:1: the first command makes the hosts",
		"# only a title\n":   "f.txt:1:1: no command here",
		"":                   "f.txt:1:1: no command here",
	} {
		if _, err := Parse("f.txt", text); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", text, err, want)
		}
	}
}

func TestDocumentsFollowTheCommands(t *testing.T) {
	s, err := Parse("f.txt", begin+"apply a.yaml\n-- a.yaml --\n# yaml's own\nx: 1\n-- b --\n")
	if err != nil {
		t.Fatal(err)
	}
	if s.Title != "Title." || string(s.Files["a.yaml"]) != "# yaml's own\nx: 1\n" || len(s.Files) != 2 || len(s.Steps) != 4 {
		t.Errorf("title %q, files %q, %d steps", s.Title, s.Files, len(s.Steps))
	}
}

func FuzzParse(f *testing.F) {
	f.Add(begin + "exec h1 'a' \"b\\\"\"\nwait metric h1 a{b=c} >= 1\n-- x --\ny\n")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := Parse("f", text)
		var e *Error
		if err != nil && (!errors.As(err, &e) || e.Line < 1 || e.Column < 1) {
			t.Errorf("%q: %v", text, err)
		}
		if err == nil && len(s.Steps) == 0 {
			t.Errorf("%q: neither steps nor an error", text)
		}
	})
}
