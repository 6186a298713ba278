package translate_test

import (
	"fmt"
	"testing"

	"github.com/twillnet/twill/internal/translate"
)

func TestLimitsOfPods(t *testing.T) {
	const of = "qos.projectcalico.org/"
	for _, tt := range []struct {
		name  string
		has   map[string]string
		want  string // rate, burst and connections in, and out
		wrong string
	}{
		{"none", map[string]string{"example.com/a": "1"}, "none", "[]"},
		{"an empty one", map[string]string{of + "ingressPacketRate": ""}, "none", "[]"},
		{"all", map[string]string{
			of + "ingressPacketRate": "100", of + "ingressPacketBurst": "7", of + "ingressMaxConnections": "4294967295",
			of + "egressPacketRate": "10k", of + "egressPacketBurst": "1e3", of + "egressMaxConnections": "2Ki",
		}, "100 7 4294967295, 10000 1000 2048", "[]"},
		{"no number", map[string]string{of + "ingressPacketRate": "many", of + "egressMaxConnections": "3"}, "0 0 0, 0 0 3", `[{qos.projectcalico.org/ingressPacketRate is "many": want a whole number such as 100 or 10k}]`},
		{"half a packet", map[string]string{of + "ingressPacketRate": "1500m"}, "none", `[{qos.projectcalico.org/ingressPacketRate is "1500m": want a whole number such as 100 or 10k}]`},
		{"beyond a bound", map[string]string{of + "egressPacketRate": "11k"}, "none", "[{qos.projectcalico.org/egressPacketRate is 11000: want 1–10000, or 0 for no limit}]"},
		{"a bandwidth by Kubernetes' name", map[string]string{"kubernetes.io/ingress-bandwidth": "10M", of + "egressBandwidth": "1k", of + "egressPeakrate": "2k"}, "0 0 0, 0 0 0; 10000000, 1000 peak 2000", "[]"},
		{"one by both names", map[string]string{"kubernetes.io/ingress-bandwidth": "10M", of + "ingressBandwidth": "20M"}, "0 0 0, 0 0 0; 20000000, 0 peak 0", "[]"},
		{"bits that are too few", map[string]string{"kubernetes.io/egress-bandwidth": "999"}, "none", "[{kubernetes.io/egress-bandwidth is 999: want 1000–1000000000000000, or 0 for no limit}]"},
		{"a peak that is none", map[string]string{of + "ingressBandwidth": "2M", of + "ingressPeakrate": "2M"}, "0 0 0, 0 0 0; 2000000, 0 peak 0", "[{qos.projectcalico.org/ingressPeakrate is 2000000: want more than ingressBandwidth, which is 2000000}]"},
		{"a code point", map[string]string{of + "dscp": "ef"}, "0 0 0, 0 0 0 ef", "[]"},
		{"one that is none", map[string]string{of + "dscp": "AF44"}, "none", `[{qos.projectcalico.org/dscp is "AF44": want 0–63, or a name such as EF, AF11 or CS0}]`},
		{"a burst of no rate", map[string]string{of + "egressPacketBurst": "5"}, "none", "[{qos.projectcalico.org/egressPacketBurst is 5, and there is no egressPacketRate}]"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			q, wrong := translate.Limits(tt.has)
			got := "none"
			if q != nil {
				got = fmt.Sprint(q.IngressPacketRate, q.IngressPacketBurst, q.IngressMaxConnections) + ", " + fmt.Sprint(q.EgressPacketRate, q.EgressPacketBurst, q.EgressMaxConnections)
			}
			if q != nil && q.DSCP != "" {
				got += " " + string(q.DSCP)
			}
			if q != nil && q.IngressBandwidth+q.EgressBandwidth > 0 {
				got += "; " + fmt.Sprint(q.IngressBandwidth) + fmt.Sprintf(", %d peak %d", q.EgressBandwidth, q.EgressPeakrate)
			}
			if text := fmt.Sprint(wrong); got != tt.want || text != tt.wrong && len(wrong) > 0 || (len(wrong) == 0) != (tt.wrong == "[]") {
				t.Errorf("%s, wrong %s; want %s, wrong %s", got, text, tt.want, tt.wrong)
			}
			for name := range tt.has {
				if want := name != "example.com/a"; translate.IsLimit(name) != want {
					t.Errorf("%s is a limit: %v", name, !want)
				}
			}
		})
	}
}
