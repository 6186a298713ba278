package ipam_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/ipam"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

func TestIPAMShowInAllForms(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	var doc struct {
		Pools []ipam.PoolUse `json:"pools"`
	}
	if err := json.Unmarshal([]byte(c.Want(0, "", "ipam", "show", "-o", "json")), &doc); err != nil {
		t.Fatal(err)
	}
	if p := doc.Pools[0]; p.Name != "pods" || p.Usage.InUse != 5 || p.Usage.Free != 251 || len(p.Blocks) != 2 || p.Blocks[1].Affinity != "host:n9" {
		t.Errorf("got %+v", p)
	}
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "-o", "yaml"), "name: pods6")
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--ip=10.65.0.3", "-o", "json"), `"handle": "k8s-pod-network.api"`)
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--ip=fd65::9"), "fd65::9 is free")
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--ip=192.0.2.9"), "is in no pool")
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--show-borrowed", "-o", "json"), `"node": "n2"`)
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--show-configuration"), "autoAllocateBlocks            true")
	// A block whose pool is gone is shown, too.
	c.Want(0, "", "delete", "ippool", "pods")
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--show-blocks"), "no pool", "10.65.0.16/28")
	clitest.Contains(t, newCLI(t).Want(0, "", "ipam", "show"), "apply an IPPool")
}

func TestIPAMReportsAreReleased(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	report := clitest.File(t, "report.json", c.Want(1, "", "ipam", "check", "-o", "json"))
	// Its address is somebody else's by the time that the report is used.
	c.Want(0, "", "ipam", "release", "--ip=10.65.0.16")
	clitest.Contains(t, c.Want(0, "", "ipam", "release", "--from-report="+report), "10.65.0.4 released", "10.65.0.16 is free already")
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--ip=10.65.0.4"), "10.65.0.4 is free")
	clitest.Contains(t, c.Want(1, "", "ipam", "release", "--from-report="+clitest.File(t, "no.json", "{}")), "want what `twill ipam check -o json` prints")

	late := clitest.WithAddresses(newCLI(t))
	text, err := os.ReadFile(report)
	if err != nil {
		t.Fatal(err)
	}
	old := strings.Replace(string(text), `"sequence": 1767323045000000004`, `"sequence": 17`, 1)
	clitest.Contains(t, late.Want(1, "", "ipam", "release", "--from-report="+clitest.File(t, "old.json", old)), "10.65.0.4 belongs to somebody else by now", "10.65.0.16 released")

	// An endpoint has it by then.
	back := clitest.WithAddresses(newCLI(t))
	back.Raw("workloadendpoints/prod/n1-k8s-old-eth0", `{"kind":"WorkloadEndpoint","apiVersion":"projectcalico.org/v3","metadata":{"name":"n1-k8s-old-eth0","namespace":"prod"},"spec":{"node":"n1","orchestrator":"k8s","pod":"old","endpoint":"eth0","interfaceName":"cali9","ipNetworks":["10.65.0.4/32"]}}`)
	clitest.Contains(t, back.Want(1, "", "ipam", "release", "--from-report="+report), "release 10.65.0.4: in use by endpoint prod/n1-k8s-old-eth0 on n1", "10.65.0.16 released")
	clitest.Contains(t, back.Want(0, "", "ipam", "release", "--force", "--from-report="+report), "10.65.0.4 released")
}

func TestSeveralReportsAreReleased(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	var whole map[string]json.RawMessage
	if err := json.Unmarshal([]byte(c.Want(1, "", "ipam", "check", "-o", "json")), &whole); err != nil {
		t.Fatal(err)
	}
	args := []string{"ipam", "release"}
	var findings []json.RawMessage
	if err := json.Unmarshal(whole["findings"], &findings); err != nil {
		t.Fatal(err)
	}
	for i, f := range findings { // a report of each
		whole["findings"] = json.RawMessage("[" + string(f) + "]")
		part, err := json.Marshal(whole)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, "--from-report="+clitest.File(t, fmt.Sprintf("%d.json", i), string(part)))
	}
	clitest.Contains(t, c.Want(0, "", args...), "10.65.0.4 released", "10.65.0.16 released")
}

// TestCalicoctlsReportIsReleased: ours without our findings is one. It may hold leaked what is not.
func TestCalicoctlsReportIsReleased(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	var whole map[string]any
	dec := json.NewDecoder(strings.NewReader(c.Want(1, "", "ipam", "check", "-o", "json")))
	dec.UseNumber() // sequence numbers are longer than a float
	if err := dec.Decode(&whole); err != nil {
		t.Fatal(err)
	}
	delete(whole, "findings")
	delete(whole, "looked")
	allocations := whole["allocations"].(map[string]any)
	leaked := func(address string) any {
		return allocations[address].([]any)[0].(map[string]any)["inUse"]
	}
	if leaked("10.65.0.4") != false || leaked("10.65.0.1") != true {
		t.Fatalf("%v", allocations)
	}
	allocations["10.65.0.1"].([]any)[0].(map[string]any)["inUse"] = false
	text, err := json.Marshal(whole)
	if err != nil {
		t.Fatal(err)
	}
	report := clitest.File(t, "theirs.json", string(text))
	clitest.Contains(t, c.Want(1, "", "ipam", "release", "--from-report="+report), "10.65.0.4 released", "10.65.0.16 released", "release 10.65.0.1: in use by endpoint prod/n1-k8s-web-eth0 on n1")
	whole["clusterGUID"] = "another"
	if text, err = json.Marshal(whole); err != nil {
		t.Fatal(err)
	}
	clitest.Contains(t, c.Want(1, "", "ipam", "release", "--from-report="+clitest.File(t, "another.json", string(text))), "a report is of the cluster with clusterGUID another")
	c.Want(0, "", "datastore", "lock")
	clitest.Contains(t, c.Want(1, "", "ipam", "release", "--from-report="+report), "the datastore is locked")
}

func TestIPAMReleaseSparesEndpoints(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	clitest.Contains(t, c.Want(1, "", "ipam", "release", "--ip=10.65.0.1"), "release 10.65.0.1: in use by endpoint prod/n1-k8s-web-eth0 on n1; delete the endpoint or pass --force")
	clitest.Contains(t, c.Want(0, "", "ipam", "release", "--ip=10.65.0.1", "--force"), "10.65.0.1 released")
	clitest.Contains(t, c.Want(1, "", "ipam", "check"), "10.65.0.1", "is an endpoint's, and not allocated")
}

// TestANodesBlocksAreReleased: n1 has 10.65.0.0/28, with addresses in use.
func TestANodesBlocksAreReleased(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	clitest.Contains(t, c.Want(2, "", "ipam", "release", "--blocks-of=n1", "--ip=10.65.0.1"), "want one of --ip, --from-report and --blocks-of")
	clitest.Contains(t, c.Want(2, "", "ipam", "release", "--ip=10.65.0.1", "--within=10.65.0.0/24"), "twill ipam release --blocks-of=n1 --within=10.65.0.0/24")
	clitest.Contains(t, c.Want(2, "", "ipam", "release", "--blocks-of=n1", "--within=10.65.0.1/24"), "want a range such as")
	clitest.Contains(t, c.Want(0, "", "ipam", "release", "--blocks-of=n1", "--within=10.99.0.0/16"), "n1 has no such block")
	clitest.Contains(t, c.Want(1, "", "ipam", "release", "--blocks-of=n1", "--within=10.65.0.0/24"), "block 10.65.0.0/28 has addresses in use", "--force gives up such blocks, too")
	clitest.Contains(t, c.Want(0, "", "get", "blockaffinities"), "n1-10-65-0-0-28")
	clitest.Contains(t, c.Want(0, "", "ipam", "release", "--blocks-of=n1", "--within=10.65.0.0/24", "--force", "-o", "json"), `{"block":"10.65.0.0/28","node":"n1"}`)
	if got := c.Want(0, "", "get", "blockaffinities"); strings.Contains(got, "n1-10-65-0-0-28") {
		t.Errorf("still its:\n%s", got)
	}
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "--ip=10.65.0.1"), "10.65.0.1 is in use")
}

func TestHowOldALeakMustBeIsTheUsersToSay(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	clitest.Contains(t, c.Want(1, "", "ipam", "check"), "10.65.0.4")
	clitest.Contains(t, c.Want(1, "", "ipam", "check", "--grace", "999999h", "-o", "wide"), "its endpoint may be on its way (--grace 999999h0m0s)")
	const block = api.IPAMPrefix + "assignment/ipv4/block/10.65.0.0-28"
	was := clitest.IpamKeys(c, strings.TrimPrefix(block, api.IPAMPrefix))[0]
	for age, want := range map[time.Duration]string{
		14 * time.Minute: "old, and its endpoint may be on its way (--grace 15m0s)",
		16 * time.Minute: "10.65.0.4 (handle k8s-pod-network.old, namespace=prod node=n1 note=container pod=old) is allocated, and nobody has it\n  because: it was given to prod/old, which was to have a WorkloadEndpoint, and none has it\n  --fix would: free it",
	} {
		is := strings.ReplaceAll(was, "2026-01-02 03:04:05.5 +0000 UTC", time.Now().Add(-age).UTC().String())
		if err := datastore.Put(t.Context(), c.Store, api.Update{Key: block, Value: []byte(is)}); err != nil || is == was {
			t.Fatal(err, is)
		}
		clitest.Contains(t, c.Want(1, "", "ipam", "check", "-o", "wide"), want)
	}
}

func TestIPAMFixLeavesHealthyDataAlone(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	keys := []string{"assignment/ipv4/block/10.65.0.0-28", "handle/k8s-pod-network.web", "host/n1/ipv4/block/10.65.0.0-28"}
	before := clitest.IpamKeys(c, keys...)
	clitest.Contains(t, c.Want(0, "", "ipam", "check", "--fix", "--settle", "1ms"), "fixed: free it", "fixed: delete the claim", "fixed: give it up", "fixed: delete it")
	after := clitest.IpamKeys(c, keys...)
	if before[1] != after[1] || before[2] != after[2] {
		t.Errorf("changed:\n%v\nto\n%v", before, after)
	}
	if got := strings.Count(after[0], `"handle_id"`); got != 3 {
		t.Errorf("%d of three addresses in use are left: %s", got, after[0])
	}
	revision := c.Store.Revision()
	clitest.Contains(t, c.Want(0, "", "ipam", "check", "--fix", "--settle", "1ms"), "No problems found.")
	if c.Store.Revision() != revision {
		t.Error("a repair of healthy data wrote something")
	}
}

func TestIPAMSplitKeepsAllElse(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	if err := datastore.Put(t.Context(), c.Store, api.Update{Key: api.ResourcesPrefix + "ippools/pods", Value: []byte(
		`{"kind":"IPPool","apiVersion":"projectcalico.org/v3","metadata":{"name":"pods","uid":"u","annotations":{"pods":"10.65.0.0/24"}},"spec":{"newer":1,"cidr":"10.65.0.0/24","blockSize":28,"natOutgoing":true}}`)}); err != nil {
		t.Fatal(err)
	}
	if storetest.IsPoor() {
		was := clitest.Everything(t, c.Store)
		clitest.Contains(t, c.Want(1, "", "ipam", "split", "4", "--cidr", "10.65.0.0/24"), "has no transactions")
		if !maps.Equal(clitest.Everything(t, c.Store), was) {
			t.Error("what is refused has changed something")
		}
		return
	}
	before := c.Store.Revision()
	clitest.Contains(t, c.Want(0, "", "ipam", "split", "4", "--cidr", "10.65.0.0/24"), "ippool/split-pods-0 10.65.0.0/26 created", "ippool/split-pods-3 10.65.0.192/26 created")
	if c.Store.Revision() != before+1 {
		t.Error("it is not one transaction")
	}
	stored := c.Stored("ippools/split-pods-1")
	clitest.Contains(t, stored, `"name":"split-pods-1"`, `"annotations":{"pods":"10.65.0.0/24"}},"spec":{"newer":1,"cidr":"10.65.0.64/26","blockSize":28,"natOutgoing":true}}`)
	if strings.Contains(stored, `"uid":"u"`) {
		t.Errorf("two pools have one uid: %s", stored)
	}
	clitest.Contains(t, c.Want(0, "", "ipam", "show"), "split-pods-0  10.65.0.0/26    2")
	for _, wrong := range [][]string{
		{"1", "--name", "pods6", "into 1 parts"},
		{"6", "--name", "pods6", "want a power of two"},
		{"8", "--name", "split-pods-0", "its blocks are /28"},
		{"2", "--name", "nope", "there is no such pool"},
	} {
		clitest.Contains(t, c.Want(1, "", append([]string{"ipam", "split"}, wrong[:3]...)...), wrong[3])
	}
	c.Want(0, "", "ipam", "split", "2", "--name", "split-pods-0")
	clitest.Contains(t, c.Stored("ippools/split-pods-0"), "not found")
}

func TestIPAMConfigureRefusesContradictions(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	clitest.Contains(t, c.Want(1, "", "ipam", "configure", "--maxblocks=4"), "spec.maxBlocksPerHost: needs spec.strictAffinity")
	clitest.Contains(t, c.Want(1, "", "ipam", "configure", "--auto-allocate-blocks=false"), "cannot both be false")
	clitest.Contains(t, c.Want(0, "", "ipam", "configure", "--strictaffinity=true", "--max-blocks-per-host=4"), "strictAffinity                true", "borrowed addresses stay so until they are released, 1 now")
	configured(c, `{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":4}`)
	c.Want(0, "", "ipam", "configure", "--maxblocks=0", "--strictaffinity=false")
	configured(c, `{"auto_allocate_blocks":true}`)
	clitest.Contains(t, c.Want(1, "", "ipam", "configure", "--ip-cooldown-seconds=1201"), "spec.ipCooldownSeconds: is 1201: want 0 to 1200")
	clitest.Contains(t, c.Want(1, "", "ipam", "configure", "--ip-cooldown-seconds=-1"), "spec.ipCooldownSeconds: is -1: want 0 to 1200")
	clitest.Contains(t, c.Want(0, "", "ipam", "configure", "--ip-cooldown-seconds=1200"), "ipCooldownSeconds             1200")
	configured(c, `{"auto_allocate_blocks":true,"ipCooldownSeconds":1200}`)
	clitest.Contains(t, c.Want(1, "", "ipam", "configure", "--kubevirt-ip-persistence=Perhaps"), `spec.kubeVirtVMAddressPersistence: is "Perhaps": want Enabled or Disabled`)
	clitest.Contains(t, c.Want(0, "", "ipam", "configure", "--kubevirt-ip-persistence=Disabled"), "kubeVirtVMAddressPersistence  Disabled")
	configured(c, `{"auto_allocate_blocks":true,"ipCooldownSeconds":1200,"kubeVirtVMAddressPersistence":"Disabled"}`)
	c.Want(0, "", "ipam", "configure", "--strictaffinity=true", "--auto-allocate-blocks=false", "--ip-cooldown-seconds=0")
	configured(c, `{"strict_affinity":true,"kubeVirtVMAddressPersistence":"Disabled"}`)
}

// TestWhileTheDatastoreIsLockedNoAddressChanges, and all can be looked at.
func TestWhileTheDatastoreIsLockedNoAddressChanges(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	report := clitest.File(t, "report.json", c.Want(1, "", "ipam", "check", "-o", "json"))
	c.Want(0, "", "datastore", "lock")
	revision := c.Store.Revision()
	for _, args := range [][]string{
		{"release", "--ip=10.65.0.4"}, {"release", "--ip=10.65.0.1", "--force"}, {"release", "--from-report=" + report}, {"check", "--fix", "--settle", "1ms"}, {"configure", "--strictaffinity=true"},
	} {
		clitest.Contains(t, c.Want(1, "", append([]string{"ipam"}, args...)...), "the datastore is locked, and no address changes", "twill datastore unlock")
	}
	if c.Store.Revision() != revision {
		t.Error("something was written")
	}
	clitest.Contains(t, c.Want(1, "", "ipam", "check"), "10.65.0.4")
	c.Want(0, "", "ipam", "show")
	c.Want(0, "", "datastore", "unlock")
	clitest.Contains(t, c.Want(0, "", "ipam", "release", "--ip=10.65.0.4"), "10.65.0.4 released")
}

func TestADeletedPoolLeavesNoBlocksBehind(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	before := c.Store.Revision()
	clitest.Contains(t, c.Want(0, "", "delete", "ippool", "pods", "--dry-run"), "deleted (dry run)", "5 now")
	if c.Store.Revision() != before {
		t.Error("a dry run wrote something")
	}
	clitest.Contains(t, c.Want(0, "", "delete", "ippool", "pods", "spare"), "ippool/pods: addresses of it stay in use until they are released, 5 now", "ippool/spare deleted")
	out := c.Want(0, "", "get", "blockaffinities")
	if strings.Contains(out, "10.65.0.0/28") || strings.Contains(out, "10.65.0.16/28") {
		t.Errorf("blocks of a pool that is gone have owners:\n%s", out)
	}
	c.Want(0, "", "ipam", "release", "--force", "--ip=10.65.0.1,10.65.0.2,10.65.0.3,10.65.0.4")
	if _, err := c.Store.Get(t.Context(), api.IPAMPrefix+"assignment/ipv4/block/10.65.0.0-28"); err == nil {
		t.Error("a block that is nobody's stays when its last address is released")
	}
}

func TestAPoolThatMeansNothingIsDeleted(t *testing.T) {
	c := newCLI(t)
	c.Raw("ippools/broken", "{")
	c.Raw("ippools/wrong", `{"spec":{"cidr":"10.65"}}`)
	c.Want(0, "", "delete", "ippool", "broken", "wrong")
}

func TestIPAMWrongCallsAreUsage(t *testing.T) {
	for _, args := range [][]string{
		{"ipam", "shw"},
		{"ipam", "show", "--ip=x"},
		{"ipam", "show", "-o", "xml"},
		{"ipam", "show", "--ip=::ffff:10.0.0.1"},
		{"ipam", "check", "-o", "names"},
		{"ipam", "release"},
		{"ipam", "release", "--ip=1"},
		{"ipam", "release", "--ip=10.0.0.1", "--from-report=x"},
		{"ipam", "split", "2"},
		{"ipam", "split", "--name", "p"},
		{"ipam", "split", "x", "--name", "p"},
		{"ipam", "split", "2", "--name", "p", "--cidr", "10.0.0.0/8"},
		{"ipam", "configure"},
		{"ipam", "configure", "--timeout", "1s"},
	} {
		clitest.Contains(t, newCLI(t).Want(2, "", args...), "twill: ")
	}
}

func TestIPAMFormatsAreOffered(t *testing.T) {
	if out := newCLI(t).Want(0, "", "__complete", "ipam", "show", "-o", ""); !strings.Contains(out, "wide\n") || !strings.Contains(out, "json\n") {
		t.Errorf("offered: %s", out)
	}
}

const reservation = "apiVersion: projectcalico.org/v3\nkind: IPReservation\nmetadata: {name: r}\nspec: {reservedCIDRs: [10.65.0.0/30, 10.65.0.2, 10.65.0.240/28]}\n"

// 10.65.0.1 to 10.65.0.3 are in use, so of the first four one would be free.
func TestIPAMShowSubtractsReservations(t *testing.T) {
	c := clitest.WithAddresses(newCLI(t))
	before, after := poolsShown(t, c), []ipam.PoolUse(nil)
	c.Want(0, reservation, "apply", "-f", "-")
	after = poolsShown(t, c)
	if got, was := after[0].Usage, before[0].Usage; got.Reserved != 17 || got.Free != was.Free-17 || got.InUse != was.InUse {
		t.Errorf("the pool was %+v and is %+v", was, got)
	}
	if got, was := after[0].Blocks[0].Usage, before[0].Blocks[0].Usage; got.Reserved != 1 || got.Free != was.Free-1 {
		t.Errorf("the block was %+v and is %+v", was, got)
	}
	clitest.Contains(t, c.Want(0, "", "ipam", "show"), "RESERVED  FREE", "17        ")
}

func poolsShown(t *testing.T, c *clitest.CLI) []ipam.PoolUse {
	t.Helper()
	var doc struct {
		Pools []ipam.PoolUse `json:"pools"`
	}
	if err := json.Unmarshal([]byte(c.Want(0, "", "ipam", "show", "-o", "json")), &doc); err != nil {
		t.Fatal(err)
	}
	return doc.Pools
}

func TestIPAMShowHasADisabledPoolThatIsSmallerThanABlock(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata: {name: old}\nspec: {cidr: 10.65.0.0/28, disabled: true}\n", "apply", "-f", "-")
	clitest.Contains(t, c.Want(0, "", "ipam", "show", "-o", "wide"), "old   10.65.0.0/28  0       16", "disabled")
}
