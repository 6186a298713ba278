package remote

import (
	"math/rand/v2"
	"net/netip"
	"reflect"
	"testing"
	"time"

	pb "github.com/twillnet/twill/api/dataplanepb"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/seedtest"
)

// TestWhatIsSentIsWhatArrives: every field of every intent, as a driver in Go reads it. A field that is new in package intent, and that the protocol
// does not have, fails here.
func TestWhatIsSentIsWhatArrives(t *testing.T) {
	f := filler{rand.New(rand.NewPCG(seedtest.New(t), 0))}
	for range 500 {
		var want intent.Batch
		f.fill(reflect.ValueOf(&want).Elem())
		for i, e := range want.Endpoints {
			want.Endpoints[i] = f.withGroup(e)
		}
		want.InSync = false
		want.Host.MarkMask |= 0x7f // fewer bits mean nothing
		var got intent.Batch
		for _, m := range messages(want) {
			if err := Add(&got, m); err != nil {
				t.Fatalf("%v: %v", m, err)
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Fatalf("sent\n%+v\narrived\n%+v\nhost %+v\n%+v", want, got, want.Host, got.Host)
		}
	}
}

// messages are a batch's, one for each of its intents.
func messages(b intent.Batch) (out []*pb.ToDriver) {
	for _, s := range b.IPSets {
		out = append(out, &pb.ToDriver{Item: &pb.ToDriver_IpSet{IpSet: encodeSet(s)}})
	}
	for _, m := range b.Members {
		out = append(out, encode(m))
	}
	var items []any
	for _, p := range b.Policies {
		items = append(items, p)
	}
	for _, e := range b.Endpoints {
		items = append(items, e)
	}
	for _, r := range b.Routes {
		items = append(items, r)
	}
	for _, p := range b.Peers {
		items = append(items, p)
	}
	for _, x := range append(items, *b.Host) {
		out = append(out, encode(x))
	}
	for _, k := range b.Removed {
		out = append(out, &pb.ToDriver{Item: &pb.ToDriver_Removed{Removed: encodeKey(k)}})
	}
	return out
}

// filler makes values of which hardly a field is zero.
type filler struct{ *rand.Rand }

func (f filler) withGroup(e intent.Endpoint) intent.Endpoint {
	var s, staged intent.Stages
	var profiles []intent.PolicyID
	for _, v := range []any{&s, &staged, &profiles} {
		f.fill(reflect.ValueOf(v).Elem())
	}
	if f.IntN(3) == 0 {
		e.Group = intent.NewGroup(s, nil, profiles)
		return e
	}
	e.Group = intent.NewGroup(s, &staged, profiles)
	return e
}

func (f filler) addr() netip.Addr {
	b := make([]byte, []int{4, 16}[f.IntN(2)])
	for i := range b {
		b[i] = byte(1 + f.IntN(255))
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

func (f filler) prefix() netip.Prefix {
	a := f.addr()
	return netip.PrefixFrom(a, f.IntN(a.BitLen()+1)).Masked()
}

// special are values of types that not any number is a value of.
func (f filler) special(v reflect.Value) (any, bool) {
	switch v.Interface().(type) {
	case netip.Addr:
		return f.addr(), true
	case netip.Prefix:
		return f.prefix(), true
	case netip.AddrPort:
		return netip.AddrPortFrom(f.addr(), uint16(f.IntN(1<<16))), true
	case time.Duration:
		return time.Duration(f.IntN(1000)) * time.Second, true
	case intent.Action:
		return intent.Action(f.IntN(4)), true
	case intent.SetKind:
		return intent.SetKind(f.IntN(2)), true
	case intent.Family:
		return []intent.Family{intent.AnyFamily, intent.IPv4, intent.IPv6}[f.IntN(3)], true
	case intent.EndpointKind:
		return intent.EndpointKind(f.IntN(2)), true
	case intent.ServiceLoops:
		return intent.ServiceLoops(f.IntN(3)), true
	case intent.RouteKind:
		return intent.RouteKind(f.IntN(5)), true
	case intent.Move:
		return intent.Move(f.IntN(3)), true
	case intent.TunnelKind:
		return intent.TunnelKind(f.IntN(int(intent.TunnelKinds))), true
	case intent.ToHost:
		return intent.ToHost(f.IntN(3)), true
	case intent.DSCP:
		return intent.DSCP(f.IntN(65)), true
	case *intent.Group:
		return (*intent.Group)(nil), true
	case *intent.Requests: // which are for proxies alone
		return (*intent.Requests)(nil), true
	}
	return nil, false
}

func (f filler) fill(v reflect.Value) {
	if v.Type() == reflect.TypeFor[intent.Key]() {
		keys := []intent.Key{
			intent.SetID(f.text()),
			intent.PolicyID{Kind: f.text(), Namespace: f.text(), Name: f.text()},
			intent.EndpointID{Kind: intent.Host, Name: f.text()},
			intent.RouteID{Prefix: f.prefix()},
			intent.PeerID{Node: f.text(), Kind: intent.IPIP},
			intent.HostID(""),
		}
		v.Set(reflect.ValueOf(keys[f.IntN(len(keys))]))
		return
	}
	if x, is := f.special(v); is {
		v.Set(reflect.ValueOf(x))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				f.fill(v.Field(i))
			}
		}
	case reflect.Slice:
		if n := f.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
		}
		fallthrough
	case reflect.Array:
		for i := range v.Len() {
			f.fill(v.Index(i))
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		f.fill(v.Elem())
	case reflect.String:
		v.SetString(f.text())
	case reflect.Bool:
		v.SetBool(f.IntN(2) == 0)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(uint64(f.IntN(1 << min(v.Type().Bits(), 31))))
	case reflect.Int:
		v.SetInt(int64(f.IntN(1 << 20)))
	default:
		panic("a kind of field that this test does not know: " + v.Type().String())
	}
}

func (f filler) text() string { return string(rune('a' + f.IntN(26))) }

// TestWhatMeansNothingIsNamed: a driver in Go refuses such an item, whatever else is in it.
func TestWhatMeansNothingIsNamed(t *testing.T) {
	peer := func(p *pb.Peer) *pb.ToDriver {
		return &pb.ToDriver{Item: &pb.ToDriver_Policy{Policy: &pb.Policy{Ingress: []*pb.Rule{{Source: p}}}}}
	}
	for _, tt := range []struct {
		item *pb.ToDriver
		want string
	}{
		{peer(&pb.Peer{Nets: []string{"10.0.0.0/33"}}), `prefix "10.0.0.0/33" means nothing`},
		{peer(&pb.Peer{Ports: []*pb.PortRange{{Min: 1 << 16}}}), "port 65536 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_Policy{Policy: &pb.Policy{Egress: []*pb.Rule{{Action: 9}}}}}, "action 9 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_Policy{Policy: &pb.Policy{Egress: []*pb.Rule{{Family: 5}}}}}, "family 5 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_Policy{Policy: &pb.Policy{Egress: []*pb.Rule{{Protocol: 256}}}}}, "protocol 256 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_IpSet{IpSet: &pb.IPSet{Kind: 2}}}, "kind of set 2 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_Host{Host: &pb.HostSettings{EndpointToHost: 3}}}, "action to host 3 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_Host{Host: &pb.HostSettings{MarkMask: 0x3f}}}, "mask of marks 63 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_Host{Host: &pb.HostSettings{Tunnels: make([]*pb.Tunnel, 6)}}}, "number of tunnels 6 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_TunnelPeer{TunnelPeer: &pb.TunnelPeer{Kind: 5}}}, "kind of tunnel 5 means nothing"},
		{&pb.ToDriver{Item: &pb.ToDriver_Endpoint{Endpoint: &pb.Endpoint{Addresses: []string{"10.0.0"}}}}, `address "10.0.0" means nothing`},
	} {
		if err := Add(&intent.Batch{}, tt.item); err == nil || err.Error() != tt.want {
			t.Errorf("%v: %v, want %s", tt.item, err, tt.want)
		}
	}
	for _, item := range []*pb.ToDriver{
		{}, {Item: &pb.ToDriver_Removed{}}, {Item: &pb.ToDriver_Removed{Removed: &pb.Key{}}}, {Item: &pb.ToDriver_Route{Route: &pb.Route{Kind: 7, Destination: "10.0.0.0/8"}}}, {Item: &pb.ToDriver_Route{}},
	} {
		if err := Add(&intent.Batch{}, item); err == nil {
			t.Errorf("%v is taken", item)
		}
	}
}
