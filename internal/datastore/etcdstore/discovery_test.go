package etcdstore_test

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/etcdstore"
	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/kernel/machinetest"
)

// nameserver has SRV records: ports of localhost, by names. Nothing else has a name, and it cannot be reached while it is away.
type nameserver struct {
	records map[string]uint16
	away    bool
}

// start makes it that of this process.
func (n *nameserver) start(t *testing.T) {
	t.Helper()
	c := must(net.ListenPacket("udp", "127.0.0.1:0"))(t)
	before := net.DefaultResolver
	net.DefaultResolver = &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if n.away {
			return nil, errors.New("the nameserver is away")
		}
		return (&net.Dialer{}).DialContext(ctx, "udp", c.LocalAddr().String())
	}}
	t.Cleanup(func() { net.DefaultResolver = before; c.Close() })
	go func() {
		query := make([]byte, 1500)
		for {
			size, from, err := c.ReadFrom(query)
			if err != nil {
				return
			}
			_, _ = c.WriteTo(n.answer(query[:size]), from)
		}
	}()
}

// answer is a reply by RFC 1035: the question, and one record or the error that there is no such name.
func (n *nameserver) answer(query []byte) []byte {
	end := 12
	var labels []string
	for query[end] != 0 {
		size := int(query[end])
		labels = append(labels, string(query[end+1:end+1+size]))
		end += 1 + size
	}
	question := query[12 : end+5]
	port, known := n.records[strings.Join(labels, ".")]
	out := append([]byte{}, query[:2]...)
	if !known {
		out = append(out, 0x84, 0x03, 0, 1, 0, 0, 0, 0, 0, 0)
		return append(out, question...)
	}
	out = append(append(out, 0x84, 0x00, 0, 1, 0, 1, 0, 0, 0, 0), question...)
	const target = "\x09localhost\x00"
	out = append(out, 0xc0, 12, 0, 33, 0, 1, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint16(out, uint16(6+len(target)))
	out = append(out, 0, 1, 0, 1)
	return append(binary.BigEndian.AppendUint16(out, port), target...)
}

// plainMember is the port of a member that does not speak TLS.
func plainMember(t *testing.T) uint16 {
	t.Helper()
	listen := "http://" + machinetest.Address(t)
	startMember(t, member.Config{Dir: t.TempDir(), ListenClient: []string{listen}})
	return portOf(t, listen)
}

func portOf(t *testing.T, address string) uint16 {
	t.Helper()
	port := must(strconv.ParseUint(must(url.Parse(address))(t).Port(), 10, 16))(t)
	return uint16(port)
}

func TestSRVRecordsNameTheMembers(t *testing.T) {
	ca := newAuthority(t, "ca")
	serverCert, serverKey := ca.issue(t, "server")
	cert, key := ca.issue(t, "client")
	address := machinetest.Address(t)
	startMember(t, member.Config{
		Dir: t.TempDir(), ListenClient: []string{"https://" + address}, CertFile: serverCert, KeyFile: serverKey, ClientCAFile: ca.file(),
	})
	toSecure, toPlain := portOf(t, "https://"+address), plainMember(t)
	const secure, insecure, domain = "_etcd-client-ssl._tcp.example.org", "_etcd-client._tcp.example.org", "example.org"
	files := datastore.Config{CertFile: cert, KeyFile: key, CAFile: ca.file()}
	for _, tt := range []struct {
		name    string
		records map[string]uint16
		cfg     datastore.Config
		why     string
	}{
		{"of members that speak TLS", map[string]uint16{secure: toSecure}, files, ""},
		{"of members that do not", map[string]uint16{insecure: toPlain}, datastore.Config{}, ""},
		{"of both: those that speak TLS", map[string]uint16{secure: toSecure, insecure: toPlain}, files, ""},
		{"of members that do not, with certificates", map[string]uint16{insecure: toPlain}, files, "_etcd-client-ssl._tcp, which are those that count"},
		{"of members that do not, with a password", map[string]uint16{insecure: toPlain}, datastore.Config{Username: "u", Password: "p"}, "those that count"},
		{"of none", nil, datastore.Config{}, "_etcd-client-ssl._tcp and _etcd-client._tcp in example.org: there is none"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			(&nameserver{records: tt.records}).start(t)
			tt.cfg.DiscoverySRV = domain
			s := open(t, tt.cfg)
			err := s.Ping(t.Context())
			for until := time.Now().Add(patience); timedOut(err) && time.Now().Before(until); {
				err = s.Ping(t.Context())
			}
			switch {
			case tt.why == "" && err != nil:
				t.Errorf("ping: %v", err)
			case tt.why != "" && (!errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), tt.why)):
				t.Errorf("ping: got error %v, want that etcd is away, and %q", err, tt.why)
			}
		})
	}
}

// timedOut reports whether a nameserver did not answer, which is how one looks to a resolver that gets no processor for a while.
func timedOut(err error) bool {
	var dns *net.DNSError
	return errors.As(err, &dns) && dns.IsTimeout
}

// TestANameserverThatIsAwayIsAskedAgain: a daemon that starts before DNS is there is none that ends.
func TestANameserverThatIsAwayIsAskedAgain(t *testing.T) {
	n := &nameserver{records: map[string]uint16{"_etcd-client._tcp.example.org": plainMember(t)}, away: true}
	n.start(t)
	s, err := etcdstore.New(t.Context(), datastore.Config{DiscoverySRV: "example.org", DialTimeout: time.Minute, RequestTimeout: time.Minute})
	if err != nil {
		t.Fatalf("open while DNS is away: %v", err)
	}
	defer s.Close()
	if err := s.Ping(t.Context()); !errors.Is(err, datastore.ErrUnavailable) || !strings.Contains(err.Error(), "the nameserver is away") {
		t.Errorf("ping while DNS is away: got error %v", err)
	}
	n.away = false
	waitFor(t, s)
	got := must(s.Members(t.Context()))(t)
	for until := time.Now().Add(patience); len(got) == 1 && got[0].Err != nil && time.Now().Before(until); {
		got = must(s.Members(t.Context()))(t) // of each it waits for two seconds
	}
	if len(got) != 1 || got[0].Err != nil {
		t.Errorf("members: %+v, want the one that DNS has", got)
	}
}
