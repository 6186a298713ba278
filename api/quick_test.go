package api

import (
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// odd are texts that the quick way must leave to encoding/json, or read as it does.
var odd = []string{
	`{}`, `null`, `[]`, ` {"kind":"WorkloadEndpoint"} `, `{"Kind":"x"}`, `{"kind":null}`, `{"kind":"a","kind":"b"}`, `{"kind":"a"}x`, `{"kind":"a",}`,
	`{"kind":"a\u0062"}`, `{"kind":"é"}`, "{\"kind\":\"a\x01\"}", "{\"kind\":\"\xff\"}", `{"spec":{}}`, `{"spec":{"ports":[]}}`, `{"spec":{"ipNetworks":null}}`,
	`{"spec":{"ports":[{"name":"http","protocol":"TCP","port":80}]}}`, `{"spec":{"ports":[{"port":080}]}}`, `{"spec":{"ports":[{"port":65536}]}}`,
	`{"spec":{"ports":[{"port":1.0}]}}`, `{"spec":{"ports":[{"port":-1}]}}`, `{"spec":{"ports":[{"port":}]}}`, `{"spec":{"ports":[{"protocol":6,"port":1}]}}`,
	`{"spec":{"ports":[{"protocol":"","port":1}]}}`, `{"spec":{"node":"a","unknown":1}}`, `{"metadata":{"labels":{}}}`, `{"metadata":{"labels":{"a":"b","a":"c"}}}`,
	`{"metadata":{"labels":{"a":1}}}`, `{"metadata":{"generation":1}}`, `{"metadata":{"labels":{"a":"b"},"labels":{"c":"d"}}}`, `{"spec":{"ipNetworks":["10.0.0.1/32" "b"]}}`,
	`{"spec":{"ipNetworks":["10.0.0.1/32"],"profiles":[],"mac":"x"}}`, `{"spec"`, `{"spec":{"node":"a`, `{"spec":{"node":"a"}`, `{"kind" : "a" , "spec" : { "node" : "b" } }`, ``,
}

// sameAsJSON holds the quick way to encoding/json: what it reads, that reads alike.
func sameAsJSON(t *testing.T, data []byte) bool {
	t.Helper()
	var got, want WorkloadEndpoint
	if !quickWorkload(data, &got, nil) {
		return false
	}
	if err := readStored(data, &want); err != nil {
		t.Errorf("%q is read, and encoding/json says %v", data, err)
	} else if !reflect.DeepEqual(got, want) {
		t.Errorf("%q is read as\n%+v\nwant\n%+v", data, got, want)
	}
	return true
}

func TestTheQuickWayReadsAsEncodingJSONDoes(t *testing.T) {
	quick := 0
	for _, g := range goldens(t) {
		if strings.Contains(g.key, "/workloadendpoints/") && sameAsJSON(t, g.data) {
			quick++
		}
	}
	if quick == 0 {
		t.Error("no golden form of a workload endpoint goes the quick way")
	}
	for _, text := range odd {
		sameAsJSON(t, []byte(text))
	}
}

func FuzzQuick(f *testing.F) {
	for _, g := range goldens(f) {
		f.Add(g.data)
	}
	for _, text := range odd {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, data []byte) { sameAsJSON(t, data) })
}

func TestAWorkloadIsReadAlikeIntoMemoryThatWasUsed(t *testing.T) {
	var w Scratch
	into := 0
	all := goldens(t)
	key := ""
	for _, g := range all {
		if strings.Contains(g.key, "/workloadendpoints/") {
			key = g.key
		}
	}
	for _, text := range odd {
		all = append(all, golden{key, []byte(text)})
	}
	for range 2 { // so that each comes after others
		for _, g := range all {
			u := Update{Key: g.key, Value: g.data}
			want, wantErr := Admit(u)
			got, err := AdmitInto(u, &w)
			if !reflect.DeepEqual(got, want) || (err == nil) != (wantErr == nil) {
				t.Errorf("%s is read as\n%+v, %v\nwant\n%+v, %v", g.key, got, err, want, wantErr)
			}
			if got.Resource == Resource(&w.workload) {
				into++
			}
		}
	}
	if into == 0 {
		t.Error("nothing was read into the memory")
	}
}

// A cluster has many endpoints with the same labels: each after the first takes memory for its own name, addresses and lists alone.
func TestLabelsThatWereReadBeforeTakeNoMemory(t *testing.T) {
	const labelled = `{"metadata":{"name":"a","namespace":"prod","labels":{"app":"web","pod-template-hash":"5d4f8c7b9d","role":"frontend-of-the-shop"}},"spec":{}}`
	var w Scratch
	key := KeyPrefix(KindWorkloadEndpoint, "prod") + "h1-k8s-a-eth0"
	read := func(text string) {
		if _, err := AdmitInto(Update{Key: key, Value: []byte(text)}, &w); err != nil {
			t.Fatal(err)
		}
	}
	bare := strings.Replace(labelled, labelled[strings.Index(labelled, `,"labels"`):strings.Index(labelled, `},"spec"`)], "", 1)
	with, without := testing.AllocsPerRun(100, func() { read(labelled) }), testing.AllocsPerRun(100, func() { read(bare) })
	if with != without {
		t.Errorf("%v allocations with labels, %v without (%s)", with, without, bare)
	}
	for i := range 3 * mostTexts {
		read(strings.ReplaceAll(labelled, "web", "web"+strconv.Itoa(i)))
	}
	if n := len(w.texts); n > mostTexts {
		t.Errorf("%d texts are kept, want %d at most", n, mostTexts)
	}
}
