package resources

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/status"
)

// waiting are the flags of commands that wait until what they wrote is in force.
type waiting struct {
	on      bool
	timeout time.Duration
}

func (w *waiting) addFlags(cmd *cobra.Command) {
	cmd.Flags().BoolVar(&w.on, "wait", false, "wait until the agents of all nodes say that the policies among them are in force")
	cmd.Flags().DurationVar(&w.timeout, "wait-timeout", time.Minute, "with --wait: how long")
}

// Bounds of the time between two looks.
const (
	minLook = 100 * time.Millisecond
	maxLook = 2 * time.Second
)

// awaitRealised waits until the policies among what was written are in force on all nodes, as they are then. One that is gone is not waited for.
func (c *command) awaitRealised(ctx context.Context, s datastore.Store, written map[string]api.Ref, timeout time.Duration) error {
	maps.DeleteFunc(written, func(_ string, ref api.Ref) bool { return !slices.Contains(resources.PolicyKinds, ref.Kind) })
	if len(written) == 0 {
		return nil
	}
	p, end := c.Working("in force on all nodes", len(written))
	defer end()
	done := 0
	for look, until := minLook, time.Now().Add(timeout); ; look = min(2*look, maxLook) {
		is, err := resources.Realised(ctx, s)
		if err != nil && !errors.Is(err, resources.ErrNobodySays) {
			return err
		}
		late := lateOf(written, is)
		for ; done < len(written)-len(late) && err == nil; done++ {
			p.Step()
		}
		switch {
		case err == nil && len(late) == 0:
			return nil
		case time.Now().Add(look).After(until):
			return notEverywhere(timeout, err, late)
		}
		select {
		case <-time.After(look):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lateOf says of what was written, by how it is called, where it is not in force.
func lateOf(written map[string]api.Ref, is map[string]status.Realised) map[string]status.Realised {
	late := map[string]status.Realised{}
	for key, ref := range written {
		if r, there := is[key]; there && r.Where < r.Nodes {
			late[resources.Short(ref)] = r
		}
	}
	return late
}

// notEverywhere is the error of a wait that is over.
func notEverywhere(after time.Duration, err error, late map[string]status.Realised) error {
	if err != nil {
		return fmt.Errorf("all is written; after %s nothing is known of where it is in force: %w", after, err)
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(late)) {
		r := late[name]
		lines = append(lines, fmt.Sprintf("%s is in force on %d of %d nodes", name, r.Where, r.Nodes))
		for i, node := range slices.Sorted(maps.Keys(r.Not)) {
			if i == 10 {
				lines = append(lines, fmt.Sprintf("  and %d more", len(r.Not)-i))
				break
			}
			why := r.Not[node]
			if why == "" {
				why = "its agent has not said so yet: twill status there says what it does"
			}
			lines = append(lines, "  not on "+node+": "+why)
		}
	}
	return fmt.Errorf("all is written; after %s:\n%s", after, strings.Join(lines, "\n"))
}
