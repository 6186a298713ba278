package netstat

import (
	"maps"
	"testing"

	"github.com/twillnet/twill/internal/kernel/netnstest"
)

func TestParse(t *testing.T) {
	got, err := parse("IpExt: A\nIpExt: 1\nTcpExt: A B C\nTcpExt: 2 -1 3\n", "TcpExt:")
	if want := map[string]uint64{"A": 2, "C": 3}; err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, want %v", got, err, want)
	}
	for _, bad := range []string{"", "TcpExt: A B\n", "TcpExt: A B\nTcpExt: 1\n"} {
		if got, err := parse(bad, "TcpExt:"); err == nil {
			t.Errorf("%q is read as %v", bad, got)
		}
	}
}

func TestTheKernelCountsPasswords(t *testing.T) {
	netnstest.New(t).Do(func() {
		got, err := TCP()
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"TCPMD5NotFound", "TCPMD5Unexpected", "TCPMD5Failure"} {
			if n, ok := got[name]; !ok || n != 0 {
				t.Errorf("%s is %d, %v in a new namespace", name, n, ok)
			}
		}
	})
}
