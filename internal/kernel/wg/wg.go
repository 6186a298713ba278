// Package wg is the door to WireGuard devices: the kernel's own, and those of a process of ours where the kernel has none (wireguard-go).
//
// In: what a device should have: keys, port, peers. Out: what it has. A private key goes in and never comes out. Which of the two a device
// is, its link says: see [Userspace].
package wg

import (
	"crypto/ecdh"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/twillnet/twill/internal/kernel/netns"
)

// Kind is what package rtnl calls links of the kernel's own WireGuard devices, and Userspace those of a process.
const (
	Kind      = "wireguard"
	Userspace = "tuntap"
)

// Key is a key of Curve25519, or none: the zero value.
type Key [32]byte

// String is the form of wg(8), and of Calico's Node.
func (k Key) String() string { return base64.StdEncoding.EncodeToString(k[:]) }

// ParseKey reads that form.
func ParseKey(text string) (k Key, err error) {
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != len(k) {
		return Key{}, fmt.Errorf("%q is no key: want 32 bytes in base64", text)
	}
	return Key(b), nil
}

// NewPrivate makes a private key.
func NewPrivate() (Key, error) {
	k, err := ecdh.X25519().GenerateKey(rand.Reader)
	if err != nil {
		return Key{}, err
	}
	return Key(k.Bytes()), nil
}

// Public is the public key of a private one.
func (k Key) Public() Key {
	p, err := ecdh.X25519().NewPrivateKey(k[:])
	if err != nil {
		return Key{} // not of this length
	}
	return Key(p.PublicKey().Bytes())
}

// Peer is another host.
type Peer struct {
	Key       Key
	Host      netip.AddrPort
	KeepAlive time.Duration  // whole seconds; zero: none
	Allowed   []netip.Prefix // masked; to these packets go to the peer, and from these alone it may send

	// What the device says in addition.
	Handshake      time.Time // of the last; the zero Time: none yet
	Received, Sent int64     // bytes
}

// State is what a device has.
type State struct {
	Public Key // the zero Key: it has none yet
	Port   int
	Mark   uint32 // of the packets that it sends
	Peers  []Peer
}

// Change is what to change of a device. Zero fields change nothing.
type Change struct {
	Private Key
	Port    int
	Mark    uint32
	Remove  []Key  // before peers are set
	Set     []Peer // as they are: what a peer had of Allowed is replaced
}

// ErrNoDevice means that there is no such device, or that no process serves it.
var ErrNoDevice = errors.New("there is no such WireGuard device")

// Config of a Handle.
type Config struct {
	Dir string // of the sockets of processes; empty: there are no devices of processes
	// Command runs a process that calls [Serve], with two arguments added: the name of the device, and the path of its socket.
	Command  []string
	Patience time.Duration // how long such a process may take for an answer, and to begin; zero: 10 s
}

// Handle is for the devices of one namespace.
type Handle struct {
	ns  *netns.Handle
	cfg Config

	mu    sync.Mutex
	ended map[string]chan struct{} // closed when the process that this handle began for a device has ended
}

// New returns a handle for the devices of a namespace, which stays open as long as it is used.
func New(ns *netns.Handle, cfg Config) *Handle {
	return &Handle{ns: ns, cfg: cfg, ended: map[string]chan struct{}{}}
}

// Read returns what a device has, whose link is of the kind.
func (h *Handle) Read(name, kind string) (State, error) {
	if kind == Kind {
		return h.readKernel(name)
	}
	return h.readProcess(name)
}

// Change changes a device, whose link is of the kind.
func (h *Handle) Change(name, kind string, c Change) error {
	if kind == Kind {
		return h.changeKernel(name, c)
	}
	return h.changeProcess(name, c)
}
