package conn

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// defaultSocket is where the agent of a host answers.
const defaultSocket = "/run/twill/agent.sock"

func AgentSocket() string { return cmp.Or(os.Getenv("TWILL_SOCKET"), defaultSocket) }

// ExplainAgent says what to do when the agent does not answer.
func ExplainAgent(socket string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no agent answers at %s: is one running on this host? start it with `twill node`, or name its socket with --socket%s", socket, inLab("status"))
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is root's: run this as root", socket)
	}
	return fmt.Errorf("ask the agent at %s: %w", socket, err)
}

// BfdSocket is in the directory of the agent's socket.
func BfdSocket() string {
	return cmp.Or(os.Getenv("TWILL_BFD_SOCKET"), filepath.Join(filepath.Dir(AgentSocket()), "bfd.sock"))
}

// BgpSocket is in the directory of the agent's socket.
func BgpSocket() string {
	return cmp.Or(os.Getenv("TWILL_BGP_SOCKET"), filepath.Join(filepath.Dir(AgentSocket()), "bgp.sock"))
}

// RelaySocket is in the directory of the agent's socket.
func RelaySocket() string {
	return cmp.Or(os.Getenv("TWILL_RELAY_SOCKET"), filepath.Join(filepath.Dir(AgentSocket()), "relay-status.sock"))
}

// ExplainRelay says what to do when the relay does not answer.
func ExplainRelay(socket string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no relay answers at %s: is one running on this machine? start it with `twill relay`, or name its socket with --socket", socket)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is root's: run this as root", socket)
	}
	return fmt.Errorf("ask the relay at %s: %w", socket, err)
}

// ExplainSpeaker says what to do when the BGP daemon does not answer.
func ExplainSpeaker(socket string, err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return fmt.Errorf("no BGP daemon answers at %s: is one running on this host? start it with `twill node` or `twill bgp`, or name its socket with --socket%s", socket, inLab("bgp peers"))
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s is root's: run this as root", socket)
	}
	return err
}

// IgnoreHangup has SIGHUP mean nothing to a daemon of ours, whose settings are live. `twill node` passes it on for BIRD, which reads
// its configuration again, and a terminal that closes sends it to all.
func IgnoreHangup() { signal.Ignore(syscall.SIGHUP) }

const AskFor = 5 * time.Second // each daemon

// Patience is how long a table waits for the agent of this host, which need not be there.
const Patience = 2 * time.Second

// Speaker is what speaks BGP on this host, as the environment says: TWILL_BGP, or upstream's CALICO_NETWORKING_BACKEND, whose bird is
// BGP, by whatever program, and whose vxlan and none are none; where it says nothing, our own. A value that is none is returned as it is, to be refused.
func Speaker() string {
	backend := os.Getenv("CALICO_NETWORKING_BACKEND")
	switch backend {
	case "bird":
		backend = "on"
	case "vxlan", "none":
		backend = "off"
	}
	return cmp.Or(os.Getenv("TWILL_BGP"), backend, "on")
}
