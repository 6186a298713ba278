package endpointapi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/api/endpointpb"
	"github.com/twillnet/twill/internal/ifmon"
	"github.com/twillnet/twill/internal/resources"
)

func TestAnInterfaceIsAskedAboutAndProvisionedLast(t *testing.T) {
	b := start(t)
	b.register(1, "p")
	b.want()
	b.link("tap1", 7)
	b.link("eth1", 8)
	b.want("1 asked tap1")
	b.answer(1, 0, vm("vm1", "10.0.0.1"))
	b.want("write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32")
	b.done("tap1", nil)
	b.want("1 provisioned tap1")
	b.wait(time.Hour)
	b.want()
	b.unlink("tap1")
	b.want("delete of tap1")
	b.done("tap1", nil)
	b.want("1 gone tap1 the interface is gone")
}

func TestWhoIsAskedWhen(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want []string
	}{
		{"nobody, without a plugin", func(b *bench) { b.link("tap1", 7); b.wait(time.Hour) }, nil},
		{"a plugin that comes later", func(b *bench) { b.link("tap1", 7); b.wait(time.Hour); b.register(1, "p") }, []string{"1 asked tap1"}},
		{"each plugin", func(b *bench) { b.register(1, "p"); b.register(2, "q"); b.link("cali1", 7) }, []string{"1 asked cali1", "2 asked cali1"}},
		{"no interface that is no workload's", func(b *bench) { b.register(1, "p"); b.link("eth1", 7); b.link("lo", 8) }, nil},
		{"no interface of another's endpoint", func(b *bench) { b.register(1, "p"); b.stored(others("tap1", "10.0.0.9")); b.link("tap1", 7) }, nil},
		{"no interface of the CNI plugin", func(b *bench) {
			b.register(1, "p")
			b.c.Links(b.now, []ifmon.Change{{Link: ifmon.Link{Name: "cali1", Index: 7, Alias: "twill net c1 eth0"}}})
			b.step()
		}, nil},
		{"who says that it is not its own, again after 1, 2, 4 seconds", func(b *bench) {
			b.register(1, "p")
			b.link("tap1", 7)
			for i := range 4 {
				b.answer(1, i, nil)
				b.wait(time.Second<<i - 1)
				b.wait(1)
			}
		}, []string{"1 asked tap1", "1 asked tap1", "1 asked tap1", "1 asked tap1", "1 asked tap1"}},
		{"who does not answer, after ten seconds and the same", func(b *bench) {
			b.register(1, "p")
			b.link("tap1", 7)
			b.wait(askWait)
			b.wait(firstBackOff - 1)
			b.want("1 asked tap1")
			b.wait(1)
		}, []string{"1 asked tap1"}},
		{"an hour of silence: once in 70 seconds, in the end", func(b *bench) {
			b.register(1, "p")
			b.link("tap1", 7)
			b.wait(time.Hour)
			b.log = nil
			b.wait(140 * time.Second)
		}, []string{"1 asked tap1", "1 asked tap1"}},
		{"an interface that has another alias by now, at once", func(b *bench) {
			b.register(1, "p")
			b.link("tap1", 7)
			b.answer(1, 0, nil)
			b.c.Links(b.now, []ifmon.Change{{Link: ifmon.Link{Name: "tap1", Index: 7, Alias: "vm1"}}})
			b.step()
		}, []string{"1 asked tap1", "1 asked tap1"}},
		{"an interface that is another one by now", func(b *bench) {
			b.register(1, "p")
			b.link("tap1", 7)
			b.answer(1, 0, nil)
			b.link("tap1", 8)
		}, []string{"1 asked tap1", "1 asked tap1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			tt.do(b)
			b.t = t
			b.want(tt.want...)
		})
	}
}

func TestWhatIsRefused(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want string
	}{
		{"an interface of the host", func(b *bench) { b.hand(1, "eth0", vm("vm1", "10.0.0.1")) }, `1 failed eth0 refused: interface "eth0" is no workload's: names of these begin with tap, cali (interfacePrefix)`},
		{"the loopback", func(b *bench) { b.hand(1, "lo", vm("vm1", "10.0.0.1")) }, `1 failed lo refused: interface "lo" is no workload's: names of these begin with tap, cali (interfacePrefix)`},
		{"the host's address", func(b *bench) { b.answer(1, 0, vm("vm1", "192.0.2.1")) }, "1 failed tap1 refused: address 192.0.2.1 is the host's own, of eth0"},
		{"another endpoint's address", func(b *bench) {
			b.stored(others("tap9", "10.0.0.9"))
			b.answer(1, 0, vm("vm1", "10.0.0.9"))
		}, "1 failed tap1 refused: address 10.0.0.9 is that of WorkloadEndpoint default/h1-others-x-eth0"},
		{"another's interface", func(b *bench) {
			b.stored(others("tap1", "10.0.0.9"))
			b.answer(1, 0, vm("vm1", "10.0.0.1"))
		}, "1 failed tap1 refused: interface tap1 is that of WorkloadEndpoint default/h1-others-x-eth0"},
		{"another plugin's endpoint", func(b *bench) {
			b.stored(of("q", "tap7", "vm1", "10.0.0.7"))
			b.answer(1, 0, vm("vm1", "10.0.0.1"))
		}, "1 failed tap1 refused: WorkloadEndpoint default/h1-demo-vm1-eth0 is not this plugin's"},
		{"a loopback address", func(b *bench) { b.answer(1, 0, vm("vm1", "127.0.0.1")) }, "1 failed tap1 refused: address 127.0.0.1: want one that others can send to"},
		{"a multicast address", func(b *bench) { b.answer(1, 0, vm("vm1", "ff02::1")) }, "1 failed tap1 refused: address ff02::1: want one that others can send to"},
		{"a prefix", func(b *bench) { b.answer(1, 0, vm("vm1", "10.0.0.0/8")) }, `1 failed tap1 refused: address "10.0.0.0/8": want one address, without a length`},
		{"no address", func(b *bench) { b.answer(1, 0, vm("vm1")) }, "1 failed tap1 refused: no addresses: want at least one"},
		{"no name", func(b *bench) { b.answer(1, 0, vm("", "10.0.0.1")) }, "1 failed tap1 refused: workload endpoint's name: spec.workload is empty"},
		{"no endpoint", func(b *bench) { b.hand(1, "tap1", nil) }, "1 failed tap1 refused: there is no endpoint in it"},
		{"too many addresses", func(b *bench) { b.answer(1, 0, vm("vm1", make([]string, 65)...)) }, "1 failed tap1 refused: 65 addresses: want at most 64"},
		{"a question that was never asked", func(b *bench) { b.c.Answer(b.now, 1, &endpointpb.Answer{Number: 99}); b.step() }, "1 failed there is no question 99: its interface is gone, or it was never asked"},
		{"to take back what it does not have", func(b *bench) { b.withdraw(1, "tap1") }, "1 failed tap1 it has no endpoint of this plugin"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := start(t)
			b.register(1, "p")
			b.link("tap1", 7)
			b.log = nil
			tt.do(b)
			b.t = t
			b.want(tt.want)
			if len(b.jobs) > 0 {
				t.Errorf("jobs: %v", b.jobs)
			}
		})
	}
}

func TestARegistrationIsRefused(t *testing.T) {
	for _, r := range []*endpointpb.Register{{}, {Name: "p"}, {Name: "p", Orchestrator: "k8s"}, {Name: "p", Orchestrator: "cni"}, {Name: "p", Orchestrator: "libnetwork"}, {Name: strings.Repeat("p", 64), Orchestrator: "demo"}} {
		if err := New("h1", "v1").Register(time.Unix(1e9, 0), 1, r); err == nil {
			t.Errorf("%v is accepted", r)
		}
	}
}

// given returns a bench with a plugin, and tap1, which is its own and provisioned.
func given(t *testing.T) *bench {
	t.Helper()
	b := start(t)
	b.register(1, "p")
	b.link("tap1", 7)
	b.answer(1, 0, vm("vm1", "10.0.0.1"))
	b.done("tap1", nil)
	b.want("1 asked tap1", "write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32", "1 provisioned tap1")
	return b
}

func TestWhatAPluginSaysLater(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want []string
	}{
		{"the same again", func(b *bench) { b.answer(1, 0, vm("vm1", "10.0.0.1")) }, []string{"1 provisioned tap1"}},
		{"the same, handed over", func(b *bench) { b.hand(1, "tap1", vm("vm1", "10.0.0.1")) }, []string{"1 provisioned tap1"}},
		{"another answer to the same question", func(b *bench) { b.answer(1, 0, vm("vm1", "10.0.0.2")) }, []string{"1 failed tap1 refused: it was answered otherwise before, which stands: hand it over to change it"}},
		{"not mine, after mine", func(b *bench) { b.answer(1, 0, nil) }, []string{"1 failed tap1 it was answered by mine before, which stands: withdraw it"}},
		{"another address, handed over", func(b *bench) { b.hand(1, "tap1", vm("vm1", "10.0.0.2")); b.done("tap1", nil) }, []string{"write tap1 default/h1-demo-vm1-eth0 10.0.0.2/32", "1 provisioned tap1"}},
		{"another name, handed over", func(b *bench) { b.hand(1, "tap1", vm("vm2", "10.0.0.1")); b.done("tap1", nil) }, []string{"write tap1 default/h1-demo-vm2-eth0 10.0.0.1/32 and delete 1", "1 provisioned tap1"}},
		{"a lie, handed over: what it was stays", func(b *bench) { b.hand(1, "tap1", vm("vm1", "192.0.2.1")) }, []string{"1 failed tap1 refused: address 192.0.2.1 is the host's own, of eth0"}},
		{"withdrawn, and asked again", func(b *bench) { b.withdraw(1, "tap1"); b.done("tap1", nil); b.wait(firstBackOff) }, []string{"delete of tap1", "1 gone tap1 withdrawn", "1 asked tap1"}},
		{"withdrawn and handed over again at once", func(b *bench) {
			b.withdraw(1, "tap1")
			b.hand(1, "tap1", vm("vm1", "10.0.0.1"))
			b.done("tap1", nil)
			b.done("tap1", nil)
		}, []string{"delete of tap1", "cancel tap1", "write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32", "1 provisioned tap1"}},
		{"withdrawn while it is awaited", func(b *bench) {
			b.hand(1, "tap1", vm("vm1", "10.0.0.2"))
			b.withdraw(1, "tap1")
			b.done("tap1", context.Canceled)
			b.done("tap1", nil)
		}, []string{"write tap1 default/h1-demo-vm1-eth0 10.0.0.2/32", "cancel tap1", "delete of tap1", "1 gone tap1 withdrawn"}},
		{"two changes while the first is written", func(b *bench) {
			b.hand(1, "tap1", vm("vm1", "10.0.0.2"))
			b.hand(1, "tap1", vm("vm1", "10.0.0.3"))
			b.hand(1, "tap1", vm("vm1", "10.0.0.4"))
			b.done("tap1", context.Canceled)
			b.done("tap1", nil)
		}, []string{"write tap1 default/h1-demo-vm1-eth0 10.0.0.2/32", "cancel tap1", "write tap1 default/h1-demo-vm1-eth0 10.0.0.4/32", "1 provisioned tap1"}},
		{"handed over before the interface is there", func(b *bench) {
			b.hand(1, "tap2", vm("vm2", "10.0.0.2"))
			b.wait(time.Hour)
			b.want()
			b.link("tap2", 8)
			b.done("tap2", nil)
		}, []string{"write tap2 default/h1-demo-vm2-eth0 10.0.0.2/32", "1 provisioned tap2"}},
		{"one address for two interfaces", func(b *bench) { b.hand(1, "tap2", vm("vm2", "10.0.0.1")) }, []string{"1 failed tap2 refused: address 10.0.0.1 is that of interface tap1"}},
		{"one endpoint for two interfaces", func(b *bench) { b.hand(1, "tap2", vm("vm1", "10.0.0.2")) }, []string{"1 failed tap2 refused: WorkloadEndpoint default/h1-demo-vm1-eth0 is that of interface tap1"}},
		{"another plugin wants it", func(b *bench) { b.register(2, "q"); b.hand(2, "tap1", vm("vm2", "10.0.0.2")) }, []string{"2 failed tap1 refused: interface tap1 is that of plugin p"}},
		{"another plugin withdraws it", func(b *bench) { b.register(2, "q"); b.withdraw(2, "tap1") }, []string{"2 failed tap1 it has no endpoint of this plugin"}},
		{"the interface is another one by now", func(b *bench) { b.link("tap1", 8); b.done("tap1", nil) }, []string{"delete of tap1", "1 gone tap1 the interface is gone", "1 asked tap1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := given(t)
			tt.do(b)
			b.want(tt.want...)
		})
	}
}

func TestAPluginThatRestartsIsAskedWhatItHas(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(b *bench)
		want []string
	}{
		{"and says the same", func(b *bench) { b.answer(2, 1, vm("vm1", "10.0.0.1")) }, []string{"2 provisioned tap1"}},
		{"and says something else", func(b *bench) { b.answer(2, 1, vm("vm1", "10.0.0.2")); b.done("tap1", nil) }, []string{"write tap1 default/h1-demo-vm1-eth0 10.0.0.2/32", "2 provisioned tap1"}},
		{"and says that it is not its own", func(b *bench) { b.answer(2, 1, nil); b.done("tap1", nil) }, []string{"delete of tap1", "2 gone tap1 the plugin says that it is not its own", "2 asked tap1"}},
		{"and says nothing: it stays", func(b *bench) { b.wait(time.Hour) }, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b := given(t)
			b.c.Leave(1)
			b.wait(time.Hour)
			b.want() // it stays meanwhile
			b.register(2, "p")
			b.want("2 asked tap1 has default/h1-demo-vm1-eth0")
			tt.do(b)
			b.want(tt.want...)
		})
	}
	t.Run("before its former connection has ended", func(t *testing.T) {
		b := given(t)
		b.register(2, "p")
		b.want("1 closed: a plugin of the same name has registered", "2 asked tap1 has default/h1-demo-vm1-eth0")
		b.answer(1, 0, vm("vm1", "10.0.0.9")) // of the former one
		b.want()
	})
}

func TestAnAgentThatStartsTakesOverWhatPluginsHad(t *testing.T) {
	b := &bench{t: t, c: New("h1", "v1"), now: time.Unix(1e9, 0), jobs: map[string]*Job{}}
	b.c.Configure([]string{"tap"})
	b.stored(of("p", "tap1", "vm1", "10.0.0.1"), of("p", "tap2", "vm2", "10.0.0.2"), others("tap3", "10.0.0.3"), of("p", "eth0", "vm4", "10.0.0.4"))
	b.want() // before it knows the interfaces
	b.c.Links(b.now, []ifmon.Change{{Link: ifmon.Link{Name: "tap1", Index: 7}}, {Link: ifmon.Link{Name: "tap3", Index: 8}}})
	b.step()
	b.want("write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32", "delete of tap2")
	b.done("tap1", nil)
	b.done("tap2", nil)
	b.want()
	b.register(1, "p")
	b.want("1 asked tap1 has default/h1-demo-vm1-eth0")
}

func TestWhatCannotBeWrittenIsTriedAgain(t *testing.T) {
	b := start(t)
	b.register(1, "p")
	b.link("tap1", 7)
	b.answer(1, 0, vm("vm1", "10.0.0.1"))
	b.log = nil
	b.done("tap1", errLater{"the agent is not ready"})
	b.want() // the plugin waits
	b.wait(firstBackOff)
	b.done("tap1", errors.New("the datastore is away"))
	b.want("write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32", "1 failed tap1 the datastore is away")
	b.wait(2 * firstBackOff)
	b.done("tap1", errors.New("the datastore is away"))
	b.want("write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32") // it knows that already
	b.wait(time.Minute)
	b.done("tap1", nil)
	b.want("write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32", "1 provisioned tap1")
}

func TestWhatIsNotInForceYetIsAwaitedWithoutABreak(t *testing.T) {
	b := start(t)
	b.register(1, "p")
	b.link("tap1", 7)
	b.answer(1, 0, vm("vm1", "10.0.0.1"))
	b.log = nil
	b.done("tap1", errNotYet{"the interface is down"})
	b.want("1 failed tap1 the interface is down", "write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32")
	b.done("tap1", errNotYet{"the interface is down"})
	b.want("write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32")
	b.done("tap1", nil)
	b.want("1 provisioned tap1")
}

func TestWhatOthersDeleteIsWrittenAgain(t *testing.T) {
	b := given(t)
	u, err := resources.Stored(of("p", "tap1", "vm1", "10.0.0.1"))
	if err != nil {
		t.Fatal(err)
	}
	b.c.Stored(b.now, []api.Update{u}, true)
	b.step()
	b.want()
	b.c.Stored(b.now, []api.Update{{Key: u.Key}}, true)
	b.step()
	b.want("write tap1 default/h1-demo-vm1-eth0 10.0.0.1/32")
}

// TestAPluginThatAnswersNothingIsAskedLittle: however many interfaces there are.
func TestAPluginThatAnswersNothingIsAskedLittle(t *testing.T) {
	b := start(t)
	b.register(1, "p")
	for i := range 3 * maxAsked {
		b.link(fmt.Sprintf("tap%03d", i), 10+i)
	}
	if len(b.log) != maxAsked {
		t.Errorf("asked %d times, want %d", len(b.log), maxAsked)
	}
	b.wait(askWait)
	if len(b.log) != 2*maxAsked {
		t.Errorf("asked %d times after %v, want %d", len(b.log), askWait, 2*maxAsked)
	}
}

// TestWhatIsReportedOfInterfaces: who was asked, what each said, and what a plugin has.
func TestWhatIsReportedOfInterfaces(t *testing.T) {
	b := start(t)
	b.link("tap1", 7)
	if r := b.c.Report(); r != nil {
		t.Errorf("without a plugin: %+v", r)
	}
	b.register(1, "p")
	b.register(2, "q")
	b.link("tap2", 8)
	b.link("tap3", 9)
	b.answer(1, 0, nil) // of tap1
	b.hand(2, "tap2", vm("vm2", "10.0.0.2"))
	b.done("tap2", nil)
	b.hand(1, "tap3", vm("vm3", "10.0.0.3"))
	b.done("tap3", errors.New("the datastore is away"))
	b.hand(1, "tap4", vm("vm4", "10.0.0.4"))
	b.wait(askWait)
	b.c.Leave(1)
	var got []string
	for _, i := range b.c.Report().Interfaces {
		got = append(got, strings.TrimSpace(fmt.Sprintf("%s %s %s %s", i.Interface, i.State, i.Plugin, i.Reason)))
	}
	want := []string{"tap1 nobody's  q did not answer", "tap2 provisioned q", "tap3 failed p the datastore is away", "tap4 awaited p there is no such interface yet"}
	if !slices.Equal(got, want) {
		t.Errorf("the report is\n  %s\nwant\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}
