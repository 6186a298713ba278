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
	"github.com/twillnet/twill/internal/resources"
)

// readyWithin is how long -complete-startup waits for the daemons of this host and for the API server, as upstream's does, and lookEach how long between two looks.
var (
	readyWithin = 5 * time.Minute
	lookEach    = time.Second
)

// completeStartup says of this node in Kubernetes that it has a network, once the daemons of this host are ready: upstream's controllers, and
// calico-node -shutdown, say that it has none, and leave it to the node to take that back (decision 115). Then it waits until it is stopped, as
// upstream's does: a supervisor starts again what ends.
func (c *command) completeStartup(ctx context.Context) error {
	done, err := c.sayNetwork(ctx)
	if ctx.Err() != nil {
		return nil // it was stopped
	}
	if err != nil {
		return err
	}
	c.Log().Info("calico-node -complete-startup: there is nothing more to do", "done", done)
	<-ctx.Done()
	return nil
}

// sayNetwork does that, and returns in words what it did.
func (c *command) sayNetwork(ctx context.Context) (done string, err error) {
	if os.Getenv("CALICO_NETWORKING_BACKEND") == "none" {
		return "nothing: it is another plugin's network", nil
	}
	l, err := node.Local()
	if err != nil {
		return "", err
	}
	cfg, is := l.Cluster(&c.Conn)
	if !is {
		return "nothing: no Kubernetes is named, and there is nobody to tell", nil
	}
	client, err := apiserver.New(cfg)
	if err != nil {
		return "", err
	}
	name := cmp.Or(os.Getenv("CALICO_K8S_NODE_REF"), l.Node)
	say := func() error {
		_, err := client.NodeNetwork(ctx, name, true, "PolicyInForce", "the agent of this node is ready")
		return err
	}
	switch why, err := onceReady(ctx, l, say); {
	case err != nil:
		return "", node.WhoMay(l, fmt.Errorf("say that node %s has a network: %w", name, err))
	case why != "":
		return "", fmt.Errorf("it is not said that node %s has a network: %s", name, why)
	}
	return "node " + name + " has a network", nil
}

// onceReady does something once the daemons are ready, again while it fails with an error that passes. When the time is over it returns what is not ready,
// or the last error. It looks once at least.
func onceReady(ctx context.Context, l conn.Local, do func() error) (why string, err error) {
	over, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	for {
		if why, err = notReady(ctx, l), nil; why == "" {
			if err = do(); err == nil || !resources.Passes(err) {
				return "", err
			}
		}
		select {
		case <-over.Done():
			return why, err
		case <-time.After(lookEach):
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
