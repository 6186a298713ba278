package caliconode

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/bgp/daemon"
	"github.com/twillnet/twill/internal/bgp/nodestatus"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/node"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// readyWithin is how long -complete-startup waits for the daemons of this host, as upstream's does.
var readyWithin = 5 * time.Minute

// completeStartup says of this node in Kubernetes that it has a network, once the daemons of this host are ready: upstream's controllers, and
// calico-node -shutdown, say that it has none, and leave it to the node to take that back (decision 115).
func (c *command) completeStartup(ctx context.Context) error {
	if os.Getenv("CALICO_NETWORKING_BACKEND") == "none" {
		return nil // another plugin's network, of which that one knows
	}
	l, err := node.Local()
	if err != nil {
		return err
	}
	cfg, is := l.Cluster(&c.Conn)
	if !is {
		c.Log().Info("calico-node -complete-startup: no Kubernetes is named, and there is nobody to tell")
		return nil
	}
	client, err := apiserver.New(cfg)
	if err != nil {
		return err
	}
	name := cmp.Or(os.Getenv("CALICO_K8S_NODE_REF"), l.Node)
	if why := waitUntilReady(ctx, l); why != "" {
		return fmt.Errorf("it is not said that node %s has a network: %s", name, why)
	}
	if _, err = client.NodeNetwork(ctx, name, true, "PolicyInForce", "the agent of this node is ready"); err != nil {
		return fmt.Errorf("say that node %s has a network: %w", name, err)
	}
	return nil
}

// waitUntilReady returns what is not ready when the time is over; empty: all is. It looks once at least.
func waitUntilReady(ctx context.Context, l conn.Local) string {
	over, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		why := notReady(ctx, l)
		if why == "" {
			return ""
		}
		select {
		case <-over.Done():
			return why
		case <-time.After(time.Second):
		}
	}
}

// notReady says what is not ready of the agent and the speaker.
func notReady(ctx context.Context, l conn.Local) string {
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	if at := healthOf(l); l.Settings.Health.Enabled && !answers(ctx, at, "readiness") {
		return "the agent is not ready: http://" + at + "/readiness"
	}
	if conn.Speaker() == "off" {
		return ""
	}
	report, err := daemon.Report(ctx, conn.BgpSocket())
	if err != nil {
		return fmt.Sprintf("BGP does not answer: %v", err)
	}
	return strings.Join(nodestatus.NotReady(report), "; ")
}

// healthOf is where this host's agent answers probes.
func healthOf(l conn.Local) string {
	return net.JoinHostPort(l.Settings.Health.Host, strconv.Itoa(l.Settings.Health.Port))
}
