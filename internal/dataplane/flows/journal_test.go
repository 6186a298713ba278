package flows

import (
	"fmt"
	"log/slog"
	"net/netip"
	"regexp"
	"strings"
	"testing"
	"time"
)

// logged is a packet that a rule of a policy logged, some seconds after the begin.
func logged(policy string, second float64) Flow {
	return Flow{
		Time: time.Unix(1_800_000_000, 0).Add(time.Duration(second * float64(time.Second))), Logged: true, Prefix: "calico-packet", Policy: policy, Dir: "Ingress", Rule: 2,
		Src: netip.MustParseAddr("10.0.0.1"), Dst: netip.MustParseAddr("10.0.0.2"), Proto: 1, To: "ns/web", In: "eth0",
	}
}

func TestALogTakesSoMuchAndSaysWhatIsLeftOut(t *testing.T) {
	type flood struct {
		policy string
		second float64
		times  int
	}
	const mine, yours, global = "NetworkPolicy/mine/p", "NetworkPolicy/yours/p", "GlobalNetworkPolicy/g"
	for _, tt := range []struct {
		name   string
		floods []flood
		lines  map[string]int // of each policy
		left   string         // what is logged as left out, at the end of each interval
	}{
		{"a few are all there", []flood{{mine, 0, 3}}, map[string]int{mine: 3}, ""},
		{"one namespace has its share", []flood{{mine, 0, 1000}}, map[string]int{mine: BudgetNamespace}, "980 " + mine},
		{"and leaves the others theirs", []flood{{mine, 0, 1000}, {yours, 1, 5}, {global, 2, 6}}, map[string]int{mine: BudgetNamespace, yours: 5, global: 6}, "980 " + mine},
		{"two policies of a namespace share", []flood{{mine, 0, 15}, {"NetworkPolicy/mine/q", 0, 15}}, map[string]int{mine: 15, "NetworkPolicy/mine/q": 5}, "10 NetworkPolicy/mine/q"},
		{"then there is room again", []flood{{mine, 0, 21}, {mine, 9.9, 1}, {mine, 10, 1}}, map[string]int{mine: 21}, "2 " + mine},
		{"each time has its own", []flood{{mine, 0, 25}, {mine, 30, 22}}, map[string]int{mine: 40}, "5 " + mine + ", 2 " + mine},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var text strings.Builder
			j := journal{out: slog.New(slog.NewTextHandler(&text, nil))}
			for _, f := range tt.floods {
				for range f.times {
					j.print(logged(f.policy, f.second))
				}
			}
			j.turn(logged("", 60).Time)
			j.turn(logged("", 120).Time) // and that it says once
			var left []string
			for _, m := range regexp.MustCompile(`left_out=(\d+) last_policy=(\S+) in=10s`).FindAllStringSubmatch(text.String(), -1) {
				left = append(left, m[1]+" "+m[2])
			}
			for policy, want := range tt.lines {
				if got := strings.Count(text.String(), "calico-packet: "+policy+" ingress[2]"); got != want {
					t.Errorf("%d lines of %s, want %d", got, policy, want)
				}
			}
			if got := strings.Join(left, ", "); got != tt.left {
				t.Errorf("it says that these are left out: %q, want %q", got, tt.left)
			}
		})
	}
}

func TestALogHasSoManyLinesInAll(t *testing.T) {
	var text strings.Builder
	j := journal{out: slog.New(slog.NewTextHandler(&text, nil))}
	for i := range 2 * Budget {
		j.print(logged(fmt.Sprintf("NetworkPolicy/ns%d/p", i), 0))
	}
	j.turn(logged("", 10).Time)
	if lines := strings.Count(text.String(), "calico-packet"); lines != Budget || !strings.Contains(text.String(), fmt.Sprintf("left_out=%d ", Budget)) {
		t.Errorf("%d lines, want %d\n%s", lines, Budget, text.String()[max(0, text.Len()-200):])
	}
}

func TestALineOfALogSaysWhatIsKnown(t *testing.T) {
	icmp, tcp := logged("NetworkPolicy/ns/p", 0), logged("GlobalNetworkPolicy/g", 0)
	tcp.Proto, tcp.SrcPort, tcp.DstPort, tcp.Prefix, tcp.From, tcp.Out, tcp.Endpoint = 6, 99, 80, "", "ns/api", "cali1", "ns/web"
	for _, tt := range []struct {
		f    Flow
		want string
	}{
		{icmp, `msg="calico-packet: NetworkPolicy/ns/p ingress[2]" src=10.0.0.1 dst=10.0.0.2 proto=1 to=ns/web in=eth0`},
		{tcp, `msg="GlobalNetworkPolicy/g ingress[2]" src=10.0.0.1 dst=10.0.0.2 proto=6 spt=99 dpt=80 from=ns/api to=ns/web in=eth0 out=cali1 endpoint=ns/web`},
	} {
		var text strings.Builder
		j := journal{out: slog.New(slog.NewTextHandler(&text, nil))}
		if j.print(tt.f); !strings.HasSuffix(text.String(), " level=INFO "+tt.want+"\n") {
			t.Errorf("got %q, want %q", text.String(), tt.want)
		}
	}
}
