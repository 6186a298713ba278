package kubecluster

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"strings"
)

const goarch = runtime.GOARCH

// install applies Twill's own manifest, as the binary prints it.
func (c *Cluster) install(ctx context.Context) error {
	return c.installOf(ctx, c.Twill, TwillImage)
}

// installOf applies the manifest of a binary, with an image of it.
func (c *Cluster) installOf(ctx context.Context, twill, image string) error {
	manifest, err := c.manifest(ctx, twill, image)
	if err != nil {
		return err
	}
	return c.Apply(ctx, manifest)
}

func (c *Cluster) manifest(ctx context.Context, twill, image string, more ...string) (string, error) {
	return run(exec.CommandContext(ctx, twill, append([]string{"kube", "install", "--image", image, "--pool", podRange}, more...)...), "")
}

// awaitReady waits until each node is Ready, and the DaemonSet on each.
func (c *Cluster) awaitReady(ctx context.Context) error {
	return await(ctx, func(ctx context.Context) error {
		out, err := c.Run(ctx, "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name}={.status.conditions[?(@.type=="Ready")].status} {end}`)
		if err != nil {
			return err
		}
		if ready := strings.Count(out, "=True"); ready != c.Workers {
			return fmt.Errorf("nodes that are Ready: %s", out)
		}
		out, err = c.Run(ctx, "-n", "kube-system", "get", "daemonset", "twill-node", "-o", "jsonpath={.status.numberReady} of {.status.desiredNumberScheduled}")
		if err != nil {
			return err
		}
		if want := fmt.Sprintf("%d of %[1]d", c.Workers); out != want {
			return errors.New("pods of twill-node that are ready: " + out)
		}
		return nil
	})
}
