// Package wire is how a plugin asks the agent of its host to attach a container: JSON over the agent's socket.
//
// In: a [Request] or a [Ref]. Out: what the agent did, or a [Refusal] that says why it did nothing. No credentials are
// needed but to be root, which the socket checks.
package wire

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// Paths on the agent's socket.
const (
	PathAttach  = "/cni/attach"
	PathDetach  = "/cni/detach"
	PathCheck   = "/cni/check"
	PathGC      = "/cni/gc"
	PathStatus  = "/cni/status"
	PathAssign  = "/ipam/assign"
	PathRelease = "/ipam/release"
	// PathAssigned asks whether addresses are still assigned.
	PathAssigned = "/ipam/assigned"
	// PathPodCIDRs asks for the prefixes that Kubernetes gave to the node.
	PathPodCIDRs = "/cni/podcidrs"
	// PathPool asks whether there is a pool, PathFree returns addresses of Docker's by themselves.
	PathPool = "/ipam/pool"
	PathFree = "/ipam/free"
	// PathLabels says what labels an attached container has, of which the plugin knew nothing before.
	PathLabels = "/docker/labels"
)

// DefaultSocket is where the agent of a host answers.
const DefaultSocket = "/run/twill/agent.sock"

// NotesOf is the directory in which a plugin leaves a Ref, as JSON, that it could not tell to the agent of a socket: detach
// it. The notes of a host's own agent outlive a reboot.
func NotesOf(socket string) string {
	if socket == DefaultSocket {
		return "/var/lib/twill/cni/detach"
	}
	return filepath.Join(filepath.Dir(socket), "detach")
}

// LeaveNote leaves a detachment for the agent of a socket, which does not run.
func LeaveNote(socket string, r Ref) error { return LeaveNoteIn(NotesOf(socket), r) }

// LeaveNoteIn leaves a detachment in a directory of notes.
func LeaveNoteIn(dir string, r Ref) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return WriteNote(filepath.Join(dir, filepath.Base(r.NoteName()))+".json", text)
}

// WriteNote writes a file of a directory of notes, which it makes: whole, or not at all.
func WriteNote(path string, text []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}

// MTUFileOf is the file in which the agent of a socket says how large packets of workloads may be. That of a host's own agent is where upstream's plugin
// looks for it.
func MTUFileOf(socket string) string {
	if socket == DefaultSocket {
		return "/var/lib/calico/mtu"
	}
	return filepath.Join(filepath.Dir(socket), "mtu")
}

// TunnelSockets is the directory of the sockets of processes that have WireGuard tunnels, for the agent of a socket.
func TunnelSockets(socket string) string { return filepath.Join(filepath.Dir(socket), "wireguard") }

// Pod is what Kubernetes' runtimes say of a container.
type Pod struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
}

// Request asks for a container to be attached.
type Request struct {
	Ref
	Link   string            `json:"link"` // the host's end, which exists, or is being made
	MAC    string            `json:"mac"`  // of the container's end
	Labels map[string]string `json:"labels,omitempty"`
	// Addrs are those that another plugin has assigned; none: assign as IPAM says.
	Addrs []netip.Addr `json:"addrs,omitempty"`
	IPAM  IPAM         `json:"ipam"`
	// Profile is the name of the network's; empty: that of the network, or, for Docker, none.
	Profile string `json:"profile,omitempty"`
	// NoProfile: that of the network is not made if it is not there.
	NoProfile bool `json:"noProfile,omitempty"`
	// AllowNoIPAM: a pod may name addresses of its own, which nobody assigns.
	AllowNoIPAM bool `json:"allowNoIPAM,omitempty"`
}

// IPAM says which addresses are wanted.
type IPAM struct {
	V4     bool         `json:"v4"`
	V6     bool         `json:"v6"`
	Pools4 []string     `json:"pools4,omitempty"` // names or prefixes; none: any pool
	Pools6 []string     `json:"pools6,omitempty"`
	Addrs  []netip.Addr `json:"addrs,omitempty"` // exactly these
}

// Attached is what came of a Request, or of a call for addresses.
type Attached struct {
	Endpoint string       `json:"endpoint,omitempty"` // namespace/name of the WorkloadEndpoint
	Addrs    []netip.Addr `json:"addrs"`
	MAC      string       `json:"mac,omitempty"` // that the container's end is to have; empty: the one of the request
	// MTU is that of both ends, in bytes, if the network's configuration says none; zero: the kernel's.
	MTU int `json:"mtu,omitempty"`
}

// PodCIDRs are the prefixes that Kubernetes gave to a node for its pods; none: the zero Prefix.
type PodCIDRs struct {
	V4 netip.Prefix `json:"v4"`
	V6 netip.Prefix `json:"v6"`
}

// Pool names a pool.
type Pool struct {
	CIDR netip.Prefix `json:"cidr"`
}

// Addresses are some of a network, or of Docker.
type Addresses struct {
	Network string       `json:"network"`
	Addrs   []netip.Addr `json:"addrs"`
}

// Labels are those that a container has, in place of what was known before.
type Labels struct {
	Ref    Ref               `json:"ref"`
	Labels map[string]string `json:"labels"`
}

// Labelled is what came of Labels.
type Labelled struct {
	Wrong []string `json:"wrong,omitempty"` // why some are left out
}

// Valid are the attachments of a network that still have a container; or those of Docker's, of whichever network.
type Valid struct {
	Network string `json:"network"`
	Refs    []Ref  `json:"refs"`
	Docker  bool   `json:"docker,omitempty"`
	// Addrs are addresses that Docker has without an endpoint, and Age is how old what is collected of Docker's must be: what is being made
	// is not in its list yet.
	Addrs []netip.Addr  `json:"addrs,omitempty"`
	Age   time.Duration `json:"age,omitempty"`
}

// Refusal is why the agent did not do what it was asked for. Nothing of it is left.
type Refusal struct {
	Reason string `json:"reason"`
	Later  bool   `json:"later,omitempty"` // it may do so later, as it is
}

func (r *Refusal) Error() string { return r.Reason }

// ErrNoAgent means that nobody answers at the socket.
var ErrNoAgent = errors.New("no agent answers on this host")

// Ask sends a question to the agent at a socket and reads its answer into out, unless that is nil. It speaks HTTP/1.0 by
// itself: a plugin's process asks once, and package net/http takes a millisecond to begin.
func Ask(ctx context.Context, socket, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return fmt.Errorf("%w at %s: %v; is `twill node` running?", ErrNoAgent, socket, errors.Unwrap(err)) //nolint:errorlint // the cause is for people
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	answer, err := exchange(conn, path, body)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fmt.Errorf("the agent at %s: %w", socket, err)
	case answer.code != http200:
		return answer.refusal(socket, path)
	case out == nil:
		return nil
	}
	return json.Unmarshal(answer.body, out)
}

const http200 = "200"

// answer is an answer of HTTP.
type answer struct {
	code, status, contentType string
	body                      []byte
}

// exchange asks once and reads until the agent closes the connection.
func exchange(conn io.ReadWriter, path string, body []byte) (a answer, err error) {
	head := fmt.Sprintf("POST %s HTTP/1.0\r\nHost: agent\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", path, contentType, len(body))
	if _, err := conn.Write(append([]byte(head), body...)); err != nil {
		return a, err
	}
	all, broken := io.ReadAll(io.LimitReader(conn, maxAnswer))
	top, rest, whole := bytes.Cut(all, []byte("\r\n\r\n"))
	lines := strings.Split(string(top), "\r\n")
	version, status, _ := strings.Cut(lines[0], " ")
	if !whole || !strings.HasPrefix(version, "HTTP/1.") {
		return a, errors.Join(errors.New("it went away without an answer"), broken)
	}
	a.status, a.body = status, rest
	a.code, _, _ = strings.Cut(status, " ")
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.ToLower(name) {
		case "content-type":
			a.contentType = value
		case "content-length":
			n, err := strconv.Atoi(value)
			if broken = err; err == nil && n != len(rest) { // else all is there, and how the connection ended does not matter
				broken = io.ErrUnexpectedEOF
			}
		}
	}
	return a, broken
}

// refusal is why the agent did not do it.
func (a answer) refusal(socket, path string) error {
	if a.contentType != contentType {
		return fmt.Errorf("the agent at %s answers %s to %s; is it of this version?", socket, a.status, path)
	}
	refusal := &Refusal{}
	if err := json.Unmarshal(a.body, refusal); err != nil {
		return fmt.Errorf("the agent's refusal: %w", err)
	}
	return refusal
}

const (
	contentType = "application/json"
	maxRequest  = 4 << 20
	maxAnswer   = 4 << 20
)

// Answer handles a question: f gets it and returns the answer. An error that is no [Refusal] is passed on as one.
func Answer[In, Out any](f func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		decoder := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxRequest))
		decoder.DisallowUnknownFields()
		var out any
		err := decoder.Decode(&in)
		code := http.StatusOK
		if err == nil {
			out, err = f(r.Context(), in)
		}
		if err != nil {
			refusal := &Refusal{Reason: err.Error()}
			errors.As(err, &refusal)
			out, code = refusal, http.StatusConflict
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(out) // the plugin has gone
	}
}
