package api

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api/apitest"
)

func TestBGPConfigurationsAreValidated(t *testing.T) { judgeAll(t, apitest.BGPConfigurations()) }

func TestBGPPeersAreValidated(t *testing.T) { judgeAll(t, apitest.BGPPeers()) }

func TestBFDIsConfiguredByAnAnnotation(t *testing.T) {
	for _, tt := range []struct {
		text string
		want BFD
		ok   bool
	}{
		{"off", BFD{}, true},
		{"300ms", BFD{300 * time.Millisecond, 3}, true},
		{"1sx5", BFD{time.Second, 5}, true},
		{"50msx2", BFD{50 * time.Millisecond, 2}, true},
		{"1mx255", BFD{time.Minute, 255}, true},
		{text: "on"},
		{text: ""},
		{text: "300"},
		{text: "49ms"},
		{text: "61s"},
		{text: "-1s"},
		{text: "100.0005ms"},
		{text: "300msx1"},
		{text: "300msx256"},
		{text: "300msx"},
		{text: "300ms x 3"},
		{text: "x3"},
	} {
		if got, err := ParseBFD(tt.text); got != tt.want || (err == nil) != tt.ok {
			t.Errorf("%q: %+v, %v", tt.text, got, err)
		}
		want := ""
		if !tt.ok {
			want = `metadata.annotations["twill.net/bfd"]`
		}
		meta := "name: default, annotations: {twill.net/bfd: '" + tt.text + "'}"
		judge(t, KindBGPConfiguration, meta, "{}", want)
		judge(t, KindBGPPeer, meta, "{peerSelector: all()}", want)
	}
	judge(t, KindBGPPeer, "name: a, annotations: {twill.net/bdf: 'off'}", "{peerSelector: all()}", `metadata.annotations["twill.net/bdf"]`)
	judge(t, KindBGPPeer, "name: a, annotations: {example.org/bfd: 'yes'}", "{peerSelector: all()}", "")
}

func TestBGPFiltersAreValidated(t *testing.T) { judgeAll(t, apitest.BGPFilters()) }

// TestAnInterfaceOfWhatPeersAdvertiseIsRefusedAndCloses: no rule with both could match, so that a Reject would let all through.
func TestAnInterfaceOfWhatPeersAdvertiseIsRefusedAndCloses(t *testing.T) {
	for action, want := range map[string]BGPFilterRule{"Reject": {Action: "Reject", Source: "RemotePeers"}, "Accept": {Action: "Accept", Source: "RemotePeers", Interface: "eth0", Void: true}} {
		s := stored(t, "bgpfilters/f", `{"kind":"BGPFilter","spec":{"exportV4":[{"action":"`+action+`","interface":"eth0","source":"RemotePeers"}]}}`)
		if got := s.Resource.(*BGPFilter).Spec.ExportV4[0]; !reflect.DeepEqual(got, want) || len(s.Problems) != 1 || s.Problems[0].Field != "spec.exportV4[0].interface" {
			t.Errorf("%s: %+v, problems %+v", action, got, s.Problems)
		}
	}
}

func TestFilterRulesCloseByThemselves(t *testing.T) {
	for _, tt := range []struct{ name, rule, want string }{
		{"an understood rule stays", `{"action":"Accept","cidr":"10.0.0.0/8","matchOperator":"In"}`, "Accept 10.0.0.0/8"},
		{"an unknown field makes an Accept void", `{"action":"Accept","phase":"full"}`, "void"},
		{"a priority beyond the largest makes an Accept void", `{"action":"Accept","priority":1073741824}`, "void"},
		{"and a Reject wider", `{"action":"Reject","priority":0,"source":"RemotePeers"}`, "Reject  RemotePeers"},
		{"so does one to set", `{"action":"Accept","operations":[{"setPriority":{"value":2147483646}}]}`, "void"},
		{"an interface of what peers tell makes an Accept void", `{"action":"Accept","interface":"eth0"}`, "void"},
		{"an interface of what peers tell makes a Reject wider", `{"action":"Reject","interface":"eth0","source":"RemotePeers"}`, "Reject  RemotePeers"},
		{"an unknown field leaves a Reject", `{"action":"Reject","cidr":"10.0.0.0/8","matchOperator":"In","phase":"full"}`, "Reject 10.0.0.0/8"},
		{"a prefix that is none makes a Reject wider", `{"action":"Reject","cidr":"ten","matchOperator":"In","source":"RemotePeers"}`, "Reject  RemotePeers"},
		{"an unknown operator makes an Accept void", `{"action":"Accept","cidr":"10.0.0.0/8","matchOperator":"Near"}`, "void"},
		{"an unknown action rejects", `{"action":"Shred","cidr":"10.0.0.0/8","matchOperator":"In"}`, "Reject 10.0.0.0/8"},
		{"a rule that is no object rejects all", `7`, "Reject "},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := stored(t, "bgpfilters/f", `{"kind":"BGPFilter","spec":{"importV4":[`+tt.rule+`,{"action":"Accept"}]}}`)
			rules := s.Resource.(*BGPFilter).Spec.ImportV4
			got := strings.TrimSuffix(rules[0].Action+" "+rules[0].CIDR+" "+rules[0].Source, " ")
			if rules[0].Void {
				got = "void"
			}
			if got != tt.want || rules[1].Void || rules[1].Action != "Accept" {
				t.Errorf("%q, beside it %+v; want %q", got, rules[1], tt.want)
			}
			if _, err := EncodeStored(s.Resource); (err != nil) != rules[0].Void {
				t.Errorf("stored again: %v", err)
			}
		})
	}
}

// What upstream takes and what is of no use is taken and warned of, and stays visible while it is stored.
func TestWhatIsOfNoUseIsWarnedOf(t *testing.T) {
	for _, tt := range []struct{ name, key, doc, path string }{
		{"a BGP configuration that no node goes by", "bgpconfigurations/mine", `{"kind":"BGPConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"mine"},"spec":{}}`, "metadata.name"},
		{"that of a node without a name", "bgpconfigurations/node.", `{"kind":"BGPConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"node."},"spec":{}}`, "metadata.name"},
		{"a peer without an AS number", "bgppeers/a", `{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"a"},"spec":{"peerIP":"192.0.2.1"}}`, ""},
		{"peers that say it themselves", "bgppeers/a", `{"kind":"BGPPeer","apiVersion":"projectcalico.org/v3","metadata":{"name":"a"},"spec":{"peerSelector":"all()"}}`, ""},
		{"that of a node", "bgpconfigurations/node.a", `{"kind":"BGPConfiguration","apiVersion":"projectcalico.org/v3","metadata":{"name":"node.a"},"spec":{}}`, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			docs, err := Decode([]byte(tt.doc))
			if err != nil || len(docs) != 1 {
				t.Fatal(err)
			}
			got := ""
			for _, w := range docs[0].Warnings {
				got = w.Path
			}
			if got != tt.path {
				t.Errorf("a user hears of %q, want %q", got, tt.path)
			}
			st, err := DecodeStored(Update{Key: ResourcesPrefix + tt.key, Value: []byte(tt.doc)})
			if err != nil {
				t.Fatal(err)
			}
			got = ""
			for _, p := range st.Problems {
				got = p.Field
			}
			if got != tt.path {
				t.Errorf("the problem of what is stored is at %q, want %q", got, tt.path)
			}
		})
	}
}
