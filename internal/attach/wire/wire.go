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
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
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

// Ref names one attachment: a container's interface in a network.
type Ref struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	Ifname      string `json:"ifname"` // in the container
	Pod         *Pod   `json:"pod,omitempty"`
}

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
}

// Valid are the attachments of a network that still have a container.
type Valid struct {
	Network string `json:"network"`
	Refs    []Ref  `json:"refs"`
}

// Refusal is why the agent did not do what it was asked for. Nothing of it is left.
type Refusal struct {
	Reason string `json:"reason"`
	Later  bool   `json:"later,omitempty"` // it may do so later, as it is
}

func (r *Refusal) Error() string { return r.Reason }

// ErrNoAgent means that nobody answers at the socket.
var ErrNoAgent = errors.New("no agent answers on this host")

// Ask sends a question to the agent at a socket and reads its answer into out, unless that is nil.
func Ask(ctx context.Context, socket, path string, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return err
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	var dial *net.OpError
	if errors.As(err, &dial) && dial.Op == "dial" {
		return fmt.Errorf("%w at %s: %v; is `twill node` running?", ErrNoAgent, socket, dial.Err)
	}
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode == http.StatusOK && out == nil:
		return nil
	case resp.StatusCode == http.StatusOK:
		return json.NewDecoder(resp.Body).Decode(out)
	case resp.Header.Get("Content-Type") != contentType:
		return fmt.Errorf("the agent at %s answers %s to %s; is it of this version?", socket, resp.Status, path)
	}
	refusal := &Refusal{}
	if err := json.NewDecoder(resp.Body).Decode(refusal); err != nil {
		return fmt.Errorf("the agent's refusal: %w", err)
	}
	return refusal
}

const (
	contentType = "application/json"
	maxRequest  = 4 << 20
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
