package api

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
)

// ipamGoldens are keys and values as upstream's tools have them in etcd.
var ipamGoldens = []struct {
	name, key, value string
	decode           func(Update) (any, error)
}{
	{
		"a block with two allocations of one workload and one of another", "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-29",
		`{"cidr":"10.65.0.0/29","affinity":"host:node-1","affinity_claim_time":"2026-01-02T03:04:05Z","allocations":[0,0,1,null,null,null,null,null],` +
			`"unallocated":[4,5,6,7,3],"attributes":[{"handle_id":"k8s-pod-network.abc","secondary":{"namespace":"prod","node":"node-1","pod":"web-0",` +
			`"timestamp":"2026-01-02 03:04:06.123456789 +0000 UTC"}},{"handle_id":"ipip-tunnel-addr-node-1","secondary":{"node":"node-1","type":"ipipTunnelAddress"}}],` +
			`"sequenceNumber":1767323045000000003,"sequenceNumberForAllocation":{"0":1767323045000000000,"1":1767323045000000000,"2":1767323045000000001},"deleted":false}`,
		func(u Update) (any, error) { return DecodeBlock(u) },
	},
	{
		"a new block", "/calico/ipam/v2/assignment/ipv6/block/fd65::40-125",
		`{"cidr":"fd65::40/125","affinity":"virtual:load-balancer","allocations":[null,null,null,null,null,null,null,null],"unallocated":[0,1,2,3,4,5,6,7],` +
			`"attributes":[],"sequenceNumber":7,"sequenceNumberForAllocation":{},"deleted":false}`,
		func(u Update) (any, error) { return DecodeBlock(u) },
	},
	{
		"a block whose affinity was released, and what another version wrote", "/calico/ipam/v2/assignment/ipv4/block/10.65.0.8-31",
		`{"cidr":"10.65.0.8/31","affinity":null,"allocations":[0,1],"unallocated":[],"attributes":[{"handle_id":"vm.1","secondary":{"node":"h1"},` +
			`"alternate":{"node":"h2"},"newer":[1]},{"handle_id":"x","releasedAt":"2026-01-02T03:04:05Z"}],"sequenceNumber":3,"sequenceNumberForAllocation":null,` +
			`"deleted":false,"strictAffinity":false}`,
		func(u Update) (any, error) { return DecodeBlock(u) },
	},
	{
		"a handle", "/calico/ipam/v2/handle/k8s-pod-network.abc", `{"block":{"10.65.0.0/29":2,"fd65::40/125":1},"deleted":false}`,
		func(u Update) (any, error) { return DecodeHandle(u) },
	},
	{
		"an affinity", "/calico/ipam/v2/host/node-1/ipv4/block/10.65.0.0-29", `{"state":"confirmed","deleted":false}`,
		func(u Update) (any, error) { return DecodeAffinity(u) },
	},
	{
		"an affinity that is being given up, as stores without transactions have it", "/calico/ipam/v2/host/node-1/ipv4/block/10.65.0.8-29",
		`{"state":"pendingDeletion","deleted":true}`,
		func(u Update) (any, error) { return DecodeAffinity(u) },
	},
	{
		"a claim", "/calico/ipam/v2/virtual/load-balancer/ipv6/block/fd65::40-125", `{"state":"pending","deleted":false}`,
		func(u Update) (any, error) { return DecodeAffinity(u) },
	},
	{
		"the configuration", "/calico/ipam/v2/config", `{"strict_affinity":true,"auto_allocate_blocks":true,"maxBlocksPerHost":4,"newer":"x"}`,
		func(u Update) (any, error) { return DecodeIPAMConfig(u) },
	},
	{
		"the configuration with nothing but defaults", "/calico/ipam/v2/config", `{"auto_allocate_blocks":true}`,
		func(u Update) (any, error) { return DecodeIPAMConfig(u) },
	},
}

func TestIPAMValuesAreReadAndWrittenBackEqual(t *testing.T) {
	for _, tt := range ipamGoldens {
		t.Run(tt.name, func(t *testing.T) {
			v, err := tt.decode(Update{Key: tt.key, Value: []byte(tt.value)})
			if err != nil {
				t.Fatal(err)
			}
			if got, err := json.Marshal(v); err != nil || string(got) != tt.value {
				t.Errorf("written back (%v):\n got %s\nwant %s", err, got, tt.value)
			}
			if got := keyAgain(tt.key); got != tt.key {
				t.Errorf("key %s, want %s", got, tt.key)
			}
		})
	}
}

// keyAgain reads a key and writes it anew.
func keyAgain(key string) string {
	if p, ok := ParseBlockKey(key); ok {
		return BlockKey(p)
	}
	if o, p, ok := ParseAffinityKey(key); ok {
		return AffinityKey(o, p)
	}
	if id, ok := ParseHandleKey(key); ok {
		return HandleKey(id)
	}
	return IPAMConfigKey
}

func TestWhatIsNoIPAMKeyIsNotRead(t *testing.T) {
	for _, key := range []string{
		"/calico/ipam/v2/assignment/ipv4/block/10.65.0.1-29", "/calico/ipam/v2/assignment/ipv6/block/10.65.0.0-29",
		"/calico/ipam/v2/assignment/ipv4/block/10.65.0.0", "/calico/ipam/v2/assignment/ipv4/block/", "/calico/ipam/v2/host/ipv4/block/10.65.0.0-29",
		"/calico/ipam/v2/other/h1/ipv4/block/10.65.0.0-29", "/calico/ipam/v2/host//ipv4/block/10.65.0.0-29", "/calico/ipam/v2/handle/", "/calico/ipam/v2/handle/a/b",
	} {
		_, block := ParseBlockKey(key)
		_, _, affinity := ParseAffinityKey(key)
		_, handle := ParseHandleKey(key)
		if block || affinity || handle {
			t.Errorf("%s: taken for a block %v, an affinity %v, a handle %v", key, block, affinity, handle)
		}
	}
}

func TestBlocksThatLieAreRefused(t *testing.T) {
	const key = "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-31"
	for _, tt := range []struct{ name, value, want string }{
		{"another block's key", `{"cidr":"10.65.0.2/31","allocations":[null,null]}`, "is the block 10.65.0.2/31"},
		{"too few allocations", `{"cidr":"10.65.0.0/31","allocations":[null]}`, "has 1 allocations, want 2"},
		{"attributes that are not there", `{"cidr":"10.65.0.0/31","allocations":[0,null],"attributes":[]}`, "attributes 0 of 0"},
		{"negative attributes", `{"cidr":"10.65.0.0/31","allocations":[-1,null],"attributes":[{}]}`, "attributes -1 of 1"},
		{"no JSON", `{`, "unexpected end"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if _, err := DecodeBlock(Update{Key: key, Value: []byte(tt.value)}); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
	b, err := DecodeBlock(Update{Key: key, Value: []byte(`{"cidr":"10.65.0.0/31","hostAffinity":"h1","allocations":[0,null],"unallocated":[0,0,7],"attributes":[{}]}`)})
	if err != nil {
		t.Fatal(err)
	}
	if own, ok := b.Owner(); !ok || own != (Owner{OwnerHost, "h1"}) {
		t.Errorf("old affinity: %v", own)
	}
	if got := strings.Join(b.Faults(), "; "); got != "10.65.0.0 is allocated and in the free list; free list has 10.65.0.0 twice; "+
		"free list has 7, which is not in the block; 10.65.0.1 is neither allocated nor in the free list" {
		t.Errorf("faults: %s", got)
	}
}

func TestOrdinalsAreAddresses(t *testing.T) {
	for _, p := range []string{"10.65.0.0/20", "10.65.1.64/26", "10.65.1.7/32", "fd65::1:0/116", "fd65::40/122"} {
		b := Block{CIDR: netip.MustParsePrefix(p)}
		a := b.CIDR.Addr()
		for ord := range b.Size() {
			if got := b.Addr(ord); got != a {
				t.Fatalf("%s: ordinal %d is %s, want %s", p, ord, got, a)
			}
			if got, ok := b.Ordinal(a); !ok || got != ord {
				t.Fatalf("%s: %s is ordinal %d, want %d", p, a, got, ord)
			}
			a = a.Next()
		}
		if _, ok := b.Ordinal(a); ok {
			t.Errorf("%s has %s", p, a)
		}
	}
}

func TestAnAffinityWithoutValueIsOld(t *testing.T) {
	if a, err := DecodeAffinity(Update{Key: "/calico/ipam/v2/host/h/ipv4/block/10.0.0.0-26", Value: []byte{}}); err != nil || a.State != "" {
		t.Errorf("%+v, %v", a, err)
	}
}
