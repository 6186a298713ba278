package serve

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/kernel/machinetest"
)

func start(t *testing.T) *Server {
	t.Helper()
	s := New("test", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }), slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-ended })
	return s
}

func client(network, address string, conf *tls.Config) *http.Client {
	return &http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: conf, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}}}
}

// await asks until the answer is as wanted.
func await(t *testing.T, c *http.Client, url string, answers bool) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; {
		resp, err := c.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		if (err == nil) == answers {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: got error %v, want an answer: %v", url, err, answers)
		}
		<-time.After(5 * time.Millisecond)
	}
}

func TestAServerMoves(t *testing.T) {
	s := start(t)
	a, b := machinetest.Address(t), machinetest.Address(t)
	s.Move(At{Network: "tcp", Address: a})
	await(t, client("tcp", a, nil), "http://x/", true)
	s.Move(At{Network: "tcp", Address: b})
	await(t, client("tcp", b, nil), "http://x/", true)
	await(t, client("tcp", a, nil), "http://x/", false)
	s.Move(At{})
	await(t, client("tcp", b, nil), "http://x/", false)
}

func TestAPortThatIsTakenLeavesTheOldOneOpen(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	s := start(t)
	a := machinetest.Address(t)
	s.Move(At{Network: "tcp", Address: a})
	await(t, client("tcp", a, nil), "http://x/", true)
	s.Move(At{Network: "tcp", Address: taken.Addr().String()})
	for range 20 {
		await(t, client("tcp", a, nil), "http://x/", true)
	}
	s.Move(At{Network: "tcp", Address: a, CertFile: "/nonexistent"})
	for range 20 {
		await(t, client("tcp", a, nil), "http://x/", true)
	}
}

func TestASocketIsForRootAndTakesTheNameOver(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run", "agent.sock")
	s := start(t)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("left by a killed process"), 0o644); err != nil {
		t.Fatal(err)
	}
	s.Move(At{Network: "unix", Address: path})
	await(t, client("unix", path, nil), "http://x/", true)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the socket is %v, %v, want mode 0600", info.Mode(), err)
	}
}

// TestASocketOfAGroup: its members may use it, and nobody else; a group that is not there is no reason to let others in.
func TestASocketOfAGroup(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	g, err := user.LookupGroupId(strconv.Itoa(os.Getgid()))
	if err != nil {
		t.Fatal(err)
	}
	l, err := Listen(At{Network: "unix", Address: path, Group: g.Name})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o660 || int(info.Sys().(*syscall.Stat_t).Gid) != os.Getgid() {
		t.Errorf("the socket is %v, %v, want mode 0660 of group %s", info, err, g.Name)
	}
	if l, err := Listen(At{Network: "unix", Address: path + "2", Group: "no such group"}); err == nil {
		l.Close()
		t.Error("a group that is not there is taken")
	}
	if _, err := os.Stat(path + "2"); err == nil {
		t.Error("a socket for a group that is not there stays")
	}
}

// TestReplace: a socket that a killed process left is replaced, and one at which somebody answers is not.
func TestReplace(t *testing.T) {
	at := At{Network: "unix", Address: filepath.Join(t.TempDir(), "s")}
	for range 2 {
		l, err := Replace(t.Context(), at)
		if err != nil {
			t.Fatal(err)
		}
		if other, err := Replace(t.Context(), at); err == nil || !strings.Contains(err.Error(), "end it first") {
			if err == nil {
				other.Close()
			}
			t.Errorf("a second one at the same place: %v", err)
		}
		l.Close() // and its socket stays
	}
}

func TestTLSWithClientsThatMustShowACertificate(t *testing.T) {
	cert, key := selfSigned(t)
	pair, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	a := machinetest.Address(t)
	s.Move(At{Network: "tcp", Address: a, CertFile: cert, KeyFile: key, ClientCAFile: cert})
	known := &tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}}
	await(t, client("tcp", a, known), "https://x/", true)
	await(t, client("tcp", a, &tls.Config{InsecureSkipVerify: true}), "https://x/", false)
	await(t, client("tcp", a, nil), "https://x/", false)
	s.Move(At{Network: "tcp", Address: a})
	await(t, client("tcp", a, nil), "http://x/", true)
}

func selfSigned(t *testing.T) (certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	certFile, keyFile = filepath.Join(t.TempDir(), "cert"), filepath.Join(t.TempDir(), "key")
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: der}, keyFile: {Type: "PRIVATE KEY", Bytes: private}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return certFile, keyFile
}
