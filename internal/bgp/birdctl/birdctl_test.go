package birdctl

import (
	"bufio"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"
)

// answers is a control socket at which BIRD answers each command with a text, as BIRD 2.0.12 did.
func answers(t *testing.T, texts map[string]string) string {
	t.Helper()
	socket := filepath.Join(t.TempDir(), "ctl")
	l, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			fmt.Fprintln(c, "0001 BIRD 2.0.12 ready.")
			command, _ := bufio.NewReader(c).ReadString('\n')
			fmt.Fprint(c, texts[strings.TrimSpace(command)])
			_ = c.Close()
		}
	}()
	return socket
}

func TestABIRDThatRefusesSaysSo(t *testing.T) {
	socket := answers(t, map[string]string{"configure": "0002-Reading configuration\n8002 /etc/bird/bird.conf:3:1 syntax error\n"})
	if err := Configure(socket); err == nil || !strings.Contains(err.Error(), "syntax error") {
		t.Errorf("%v", err)
	}
	socket = answers(t, map[string]string{"configure": "0002-Reading configuration\n0003 Reconfigured\n"})
	if err := Configure(socket); err != nil {
		t.Error(err)
	}
	if err := Configure(answers(t, nil)); err == nil {
		t.Error("no answer is taken for one")
	}
}

func TestRestartsAreSeen(t *testing.T) {
	socket := answers(t, map[string]string{"show status": `1000-BIRD 2.0.12
1011-Router ID is 172.30.0.2
 Hostname is vm
 Current server time is 2026-11-21T11:10:12
 Last reboot on 2026-11-21T11:10:09
 Last reconfiguration on 2026-11-21T11:10:11
0024-Graceful restart recovery in progress
   Waiting for 2 channels to recover
   Wait timer is 118.250/120
0013 Daemon is up and running
`})
	second := func(n int) time.Time { return time.Date(2026, 11, 21, 11, 10, n, 0, time.Local) }
	want := Status{Version: "BIRD 2.0.12", Booted: second(9), Configured: second(11), Recovering: true, RecoveryLimit: 118250 * time.Millisecond}
	if s, err := GetStatus(socket); s != want || err != nil {
		t.Errorf("%+v, %v; want %+v", s, err, want)
	}
	socket = answers(t, map[string]string{"show status": "1000-BIRD 2.0.12\n1011-Router ID is 172.30.0.2\n Last reboot on Monday\n0013 Daemon is up and running\n"})
	if s, err := GetStatus(socket); s != (Status{Version: "BIRD 2.0.12"}) || err != nil {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestProtocolsAreRead(t *testing.T) {
	socket := answers(t, map[string]string{"show protocols all": `2002-Name       Proto      Table      State  Since         Info
1002-device1    Device     ---        up     2026-11-21T11:10:09  
1006-
1002-twill_192_0_2_1 BGP        ---        up     2026-11-21T11:10:10  Established   
1006-  BGP state:          Established
     Neighbor address: 192.0.2.1
   Channel ipv4
     State:          UP
     Routes:         3 imported, 1 filtered, 2 exported, 3 preferred
     Route change stats:     received   rejected   filtered    ignored   accepted
       Import updates:              1          0          0          0          1
 
1002-twill_192_0_2_9 BGP        ---        start  2026-11-21T11:10:11  Active        Socket: No route to host
1006-  BGP state:          Active
     Last error:       Socket: No route to host
 
0000 
`})
	got, err := Protocols(socket)
	at := func(s int) time.Time { return time.Date(2026, 11, 21, 11, 10, s, 0, time.Local) }
	want := map[string]Protocol{
		"device1":         {Name: "device1", Since: at(9)},
		"twill_192_0_2_1": {Name: "twill_192_0_2_1", Since: at(10), Peer: netip.MustParseAddr("192.0.2.1"), State: "Established", Imported: 3, Filtered: 1, Exported: 2},
		"twill_192_0_2_9": {Name: "twill_192_0_2_9", Since: at(11), State: "Active", LastError: "Socket: No route to host"},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
}

func TestPathsAreRead(t *testing.T) {
	socket := answers(t, map[string]string{
		"show route all": `1007-Table master4:
 10.65.1.0/26         unicast [twill_192_0_2_1 11:07:11.918 from 192.0.2.9] * (100) [AS65001i]
 	via 192.0.2.1 on eth0
1008-	Type: BGP univ
1012-	BGP.origin: IGP
 	BGP.as_path: 65001 65002
 	BGP.next_hop: 192.0.2.1
 	BGP.community: (65000,100) (65000,200)
 	BGP.large_community: (1, 2, 3)
1007-                     unicast [twill_192_0_2_2 11:07:12.018] (100s) [i]
 	via 192.0.2.2 on eth0
1008-	Type: BGP univ
1012-	BGP.next_hop: 192.0.2.2
1007-10.65.2.0/26         blackhole [twill_kernel_4 11:10:11.056] * (200)
1008-	Type: inherit univ
1007-
 Table master6:
 fd65:0:0:1::1234:5678/128 unicast [twill_fd30__1 11:10:11.041] * (100/-) [i]
 	via fd30::1 on eth0
1008-	Type: BGP univ
1012-	BGP.as_path: 
 	BGP.next_hop: fd30::1 fe80::1
0000 
`, "show route 10.65.1.0/26 export up": "1007-Table master4:\n 10.65.1.0/26         unicast [twill_192_0_2_1 11:07:11.918] * (100) [i]\n \tvia 192.0.2.1 on eth0\n0000 \n",
		"show route 10.65.1.0/26 export other": "0000 \n", "show route 10.65.1.0/26 export none": "9001 syntax error, unexpected CF_SYM_UNDEFINED\n",
	})
	got, err := Paths(socket)
	net, addr := netip.MustParsePrefix, netip.MustParseAddr
	want := []Path{
		{Dst: net("10.65.1.0/26"), Protocol: "twill_192_0_2_1", Type: "BGP", Best: true, NextHop: addr("192.0.2.1"), ASPath: []uint32{65001, 65002}, Communities: []string{"65000:100", "65000:200", "1:2:3"}},
		{Dst: net("10.65.1.0/26"), Protocol: "twill_192_0_2_2", Type: "BGP", Stale: true, NextHop: addr("192.0.2.2")},
		{Dst: net("10.65.2.0/26"), Protocol: "twill_kernel_4", Type: "inherit", Best: true},
		{Dst: net("fd65:0:0:1::1234:5678/128"), Protocol: "twill_fd30__1", Type: "BGP", Best: true, NextHop: addr("fd30::1")},
	}
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, %v\nwant %+v", got, err, want)
	}
	for session, want := range map[string]bool{"up": true, "other": false, "none": false} {
		if IsAdvertised(socket, session, net("10.65.1.0/26")) != want {
			t.Errorf("advertised to %s: %v", session, !want)
		}
	}
}
