package addresses_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// TestWhatCalicoctlsReportHoldsLeakedIsReleased, unless somebody has it by now or may not be seen yet.
func TestWhatCalicoctlsReportHoldsLeakedIsReleased(t *testing.T) {
	w := newWorld(t, true)
	w.block(map[int]attribute{
		0: {"windows-reserved-ipam-handle", map[string]string{"note": "windows host rsvd"}},
		1: pods("web"), 2: proven("gone"), 3: pods("unproven"), 4: at(pods("young"), time.Now()),
		5: {"vxlan-tunnel-addr-node-a", map[string]string{"node": "node-a", "type": "vxlanTunnelAddress"}},
		6: {"new", map[string]string{"node": "node-a", "type": "somethingNew"}}, 7: pods("again"),
	})
	w.endpoint("web", "10.0.0.1")
	file := w.upstreams("theirs.json", "",
		leak(0, 100, ""), leak(1, 101, "k8s-pod-network.web"), leak(2, 102, "k8s-pod-network.gone"), leak(3, 103, "k8s-pod-network.unproven"), leak(4, 104, "k8s-pod-network.young"),
		leak(5, 105, "vxlan-tunnel-addr-node-a"), leak(6, 106, "new"), leak(7, 99, "k8s-pod-network.again"))
	out, err := w.release(false, file)
	if err != nil {
		t.Fatal(err, out)
	}
	w.want(out, "Releasing 2 old IPs...\nReleased 2 IPs successfully\n", "Report didn't contain any handles to clean up.\nYou may now unlock the data store.\n",
		"  10.0.0.0 is kept: Reserved for Windows has it\n", "  10.0.0.1 is kept: Workload(default/web) has it\n", "  10.0.0.4 is kept: it is ", "  10.0.0.5 is kept: Node(node-a) has it\n",
		"  10.0.0.6 is kept: somethingNew is no type of which anything is known\n", "  10.0.0.7 is kept: it was given out anew since the report\n")
	if got := w.allocated(); got != "014567" {
		t.Errorf("allocated are %s", got)
	}
	out, err = w.release(false, file)
	if err != nil || !strings.Contains(out, "2 addresses marked as leaked in the report had already been cleaned up.") || regexp.MustCompile(`Released \d+ IPs`).MatchString(out) {
		t.Errorf("again: %v\n%s", err, out)
	}
}

// TestWhatOnlyKubernetesKnowsIsNotReleased: a calicoctl that knows no virtual machines holds the address of a stopped one leaked, and one that counts fewer services
// than there are theirs.
func TestWhatOnlyKubernetesKnowsIsNotReleased(t *testing.T) {
	w := newWorld(t, true)
	w.block(map[int]attribute{
		1: {"lb-a", map[string]string{"namespace": "default", "service": "web", "type": "LoadBalancer"}},
		2: {"k8s-pod-network.vmi.default.db", map[string]string{"namespace": "default", "vmi-name": "db", "node": "node-a"}},
		3: {"docker", map[string]string{"node": "node-a", "note": "docker"}}, 4: pods("unproven"),
	})
	out, err := w.release(true, w.upstreams("theirs.json", "", leak(1, 101, "lb-a"), leak(2, 102, "k8s-pod-network.vmi.default.db"), leak(3, 103, "docker"), leak(4, 104, "k8s-pod-network.unproven")))
	if err != nil {
		t.Fatal(err, out)
	}
	w.want(out, "  10.0.0.1 is kept: only Kubernetes knows whether service default/web is there\n", "  10.0.0.2 is kept: only Kubernetes knows whether virtual machine default/db is there\n", "Released 1 IPs successfully")
	if got := w.allocated(); got != "123" {
		t.Errorf("allocated are %s", got)
	}
}

// TestHandlesOfReportsAreDeleted if they are as they were: the steps of calicoctl's own test of this.
func TestHandlesOfReportsAreDeleted(t *testing.T) {
	const left = `{"handleID":"leaked-handle","block":{"10.0.0.0/29":1},"deleted":false}`
	w := newWorld(t, false)
	w.block(map[int]attribute{2: proven("gone")})
	w.raw(api.HandleKey("leaked-handle"), left)
	w.want(w.check(true), "Found 1 handles with no matching IPs (and 1 handles with matches).")
	ours := filepath.Join(w.dir, "ours.json")
	if _, err := w.release(false, ours); err == nil || !strings.Contains(err.Error(), "not locked") {
		t.Errorf("it is not locked: %v", err)
	}
	out, err := w.release(true, ours)
	if err != nil {
		t.Fatal(err)
	}
	w.want(out, "WARNING: Data store is not locked.", "Released 1 IPs successfully", "Released 1 handles; 0 skipped; 0 errors.")
	for _, key := range []string{"leaked-handle", "k8s-pod-network.gone"} {
		if _, err := w.s.Get(t.Context(), api.HandleKey(key)); err == nil {
			t.Errorf("%s is still there", key)
		}
	}
	w.raw(api.HandleKey("leaked-handle"), left) // of another revision
	for range 2 {
		out, err = w.release(true, ours)
		if err != nil || regexp.MustCompile(`Released \d+ IPs`).MatchString(out) {
			t.Errorf("%v\n%s", err, out)
		}
		w.want(out, "Released 0 handles; 1 skipped; 0 errors.")
		if err := datastore.Put(t.Context(), w.s, api.Update{Key: api.HandleKey("leaked-handle"), Value: []byte(left)}); err != nil {
			t.Fatal(err)
		}
	}
	w.block(map[int]attribute{3: {"leaked-handle", nil}}) // somebody's by now, and of a revision that a report could have
	now, err := w.s.Get(t.Context(), api.HandleKey("leaked-handle"))
	if err != nil {
		t.Fatal(err)
	}
	out, err = w.release(true, w.upstreams("theirs.json", `{"ID":"leaked-handle","UID":null,"Revision":"`+now.Revision.String()+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	w.want(out, "Released 0 handles; 1 skipped; 0 errors.")
}

// TestOfSeveralReportsWhatIsInAllIsReleased: not what one alone has, nor an address that was given out anew between them, nor a handle that was used.
func TestOfSeveralReportsWhatIsInAllIsReleased(t *testing.T) {
	w := newWorld(t, true)
	w.block(map[int]attribute{1: pods("a"), 2: pods("b"), 3: pods("c")})
	w.raw(api.HandleKey("left"), `{"handleID":"left","block":{},"deleted":false}`)
	left, err := w.s.Get(t.Context(), api.HandleKey("left"))
	if err != nil {
		t.Fatal(err)
	}
	handle := `{"ID":"left","UID":null,"Revision":"` + left.Revision.String() + `"}`
	one := w.upstreams("1.json", handle, leak(1, 101, "k8s-pod-network.a"), leak(2, 102, "k8s-pod-network.b"), leak(3, 9, "k8s-pod-network.c"))
	two := w.upstreams("2.json", `{"ID":"left","UID":null,"Revision":"0"}`, leak(2, 102, "k8s-pod-network.b"), leak(3, 103, "k8s-pod-network.c"))
	out, err := w.release(false, one, two)
	if err != nil {
		t.Fatal(err)
	}
	w.want(out, "Released 1 IPs successfully", "Report didn't contain any handles to clean up.")
	if got := w.allocated(); got != "13" {
		t.Errorf("allocated are %s", got)
	}
	out, err = w.release(false, one, one)
	if err != nil {
		t.Fatal(err)
	}
	w.want(out, "Released 1 IPs successfully", "Released 1 handles; 0 skipped; 0 errors.")
}

// TestAReportThatIsNotOfThisClusterIsRefused, or is no report; nothing is released.
func TestAReportThatIsNotOfThisClusterIsRefused(t *testing.T) {
	w := newWorld(t, true)
	w.block(map[int]attribute{1: pods("a")})
	good := w.upstreams("good.json", "", leak(1, 101, "k8s-pod-network.a"))
	text, err := os.ReadFile(good)
	if err != nil {
		t.Fatal(err)
	}
	now := regexp.MustCompile(`"clusterInformationRevision":"[^"]*"`)
	for _, tt := range []struct {
		name, text, want string
		force            bool
		alone            bool // beside one that is not stale it is taken
	}{
		{name: "another cluster", text: strings.Replace(string(text), `"g1"`, `"g2"`, 1), want: "mismatched cluster GUID. Refusing to release", force: true},
		{name: "another version", text: strings.Replace(string(text), `"v1"`, `"v3.30.1"`, 1), want: "was produced using a different version (v3.30.1) of calicoctl"},
		{name: "a stale one", text: now.ReplaceAllString(string(text), `"clusterInformationRevision":"0"`), want: "the provided reports are all stale", force: true, alone: true},
		{name: "no JSON", text: "Checking IPAM", want: "it is no report of ipam check", force: true},
		{name: "another file", text: `{"clusterGUID":"g1"}`, want: "it is no report of ipam check", force: true},
		{name: "a list", text: `[]`, want: "it is no report of ipam check", force: true},
		{name: "no sequence number", text: strings.Replace(string(text), `"sequenceNumber":101,`, ``, 1), want: "has no sequenceNumber", force: true},
		{name: "no address", text: strings.Replace(string(text), `"ip":"10.0.0.1"`, `"ip":"web"`, 1), want: `"web" at "10.0.0.1": want an address`, force: true},
		{name: "another address than it says", text: strings.Replace(string(text), `"ip":"10.0.0.1"`, `"ip":"10.0.0.2"`, 1), want: `want an address, and the same`, force: true},
		{name: "handles of old versions, without revisions", text: strings.Replace(string(text), `"leakedHandles":[]`, `"leakedHandles":["h"]`, 1), want: "it is no report of ipam check", force: true},
		{name: "a handle without revision", text: strings.Replace(string(text), `"leakedHandles":[]`, `"leakedHandles":[{"ID":"h"}]`, 1), want: `leakedHandles: "h" of revision "": want both`, force: true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			files := []string{good, w.file("bad.json", tt.text)}
			if tt.alone {
				files = files[1:]
			}
			out, err := w.release(tt.force, files...)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "bad.json") == tt.alone {
				t.Errorf("got %v, want %q\n%s", err, tt.want, out)
			}
		})
	}
	if got := w.allocated(); got != "1" {
		t.Errorf("allocated are %q", got)
	}
	if out, err := w.release(true, w.file("bad.json", strings.Replace(string(text), `"v1"`, `"v3.30.1"`, 1))); err != nil || !strings.Contains(out, "Released 1 IPs") || !strings.Contains(out, "WARNING: Report was produced using a different version") {
		t.Errorf("another version, by force: %v\n%s", err, out)
	}
}
