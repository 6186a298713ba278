package calicoctl

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/calicoctl/wording"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/resources"
)

// speaks is the major version of Calico's data that twill reads and writes.
const speaks = "3"

// clusterInfo is what the cluster says of itself.
func clusterInfo(ctx context.Context, s datastore.Store) (*api.ClusterInformation, error) {
	u, err := resources.FindStored(ctx, s, resources.ClusterInfo)
	if err != nil {
		return nil, err
	}
	st, err := api.DecodeStored(u)
	info, ok := st.Resource.(*api.ClusterInformation)
	if err == nil && !ok {
		err = fmt.Errorf("%s: cannot be read", u.Key)
	}
	return info, err
}

// checkVersion refuses to work on a cluster whose data may be of another wording. calicoctl wants its own version exactly; twill has
// none of Calico's, and the form of the data is that of version 3.
func (c *command) checkVersion(ctx context.Context) error {
	if c.args.has(optMismatch.name) {
		return nil
	}
	return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		info, err := clusterInfo(ctx, s)
		if errors.Is(err, datastore.ErrNotFound) {
			return nil
		}
		if conn.IsUnreachable(err) {
			return err
		}
		if err != nil {
			return fmt.Errorf("Unable to get Cluster Information to verify version mismatch: %w\nUse --allow-version-mismatch to override.\n", err)
		}
		v := strings.TrimPrefix(info.Spec.CalicoVersion, "v") // calicoctl's own takes it with the letter and without
		major, _, _ := strings.Cut(v, ".")
		if _, err := strconv.Atoi(major); err != nil || major == speaks {
			return nil // not set, or a build of somebody's own
		}
		return fmt.Errorf("Version mismatch.\nClient Version:   %s\nCluster Version:  %s\nUse --allow-version-mismatch to override.\n", conn.Version, v)
	})
}

func (c *command) version(ctx context.Context) error {
	poll, err := time.ParseDuration(c.args.textOr("poll", "0s"))
	if err != nil {
		return fmt.Errorf("Invalid poll duration specified: %s", c.args.text("poll"))
	}
	fmt.Fprintln(c.Out, "Client Version:   ", conn.Version)
	fmt.Fprintln(c.Out, "Git commit:       ", wording.Revision())
	if c.args.has("client") {
		return nil
	}
	return c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		for last := [2]string{}; ; {
			info, err := clusterInfo(ctx, s)
			switch {
			case err != nil && poll == 0:
				return fmt.Errorf("Unable to retrieve Cluster Version or Type: %w", worded(resources.ClusterInfo, err))
			case err != nil:
				fmt.Fprintf(c.Err, "Unable to retrieve Cluster Version or Type: %v\n", err)
				last = [2]string{}
			default:
				last = wording.Version(c.Out, info, last)
			}
			if poll == 0 {
				return nil
			}
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(poll):
			}
		}
	})
}

// quietly runs a command of twill's, and returns what it wrote to standard output.
func (c *command) quietly(ctx context.Context, args ...string) ([]byte, error) {
	var out bytes.Buffer
	was := c.Out
	c.Out = &out
	err := c.own(ctx, args...)
	c.Out = was
	return out.Bytes(), err
}

// ask runs a command of twill's and reads its answer.
func (c *command) ask(ctx context.Context, into any, args ...string) error {
	out, err := c.quietly(ctx, append(args, "-o", "json")...)
	if len(out) == 0 && err != nil {
		return err
	}
	return json.Unmarshal(out, into)
}

func (c *command) lock(ctx context.Context) error   { return c.setLocked(ctx, "lock") }
func (c *command) unlock(ctx context.Context) error { return c.setLocked(ctx, "unlock") }

func (c *command) setLocked(ctx context.Context, verb string) error {
	if _, err := c.quietly(ctx, "datastore", verb); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "Datastore %sed.\n", verb)
	return nil
}

// isLocked reports whether the cluster is frozen.
func (c *command) isLocked(ctx context.Context) (locked bool, err error) {
	err = c.with(ctx, func(ctx context.Context, s datastore.Store) error {
		info, err := clusterInfo(ctx, s)
		if err != nil {
			return fmt.Errorf("Error retrieving ClusterInformation: %w", worded(resources.ClusterInfo, err))
		}
		locked = info.Spec.Locked()
		return nil
	})
	return locked, err
}

func (c *command) export(ctx context.Context) error {
	locked, err := c.isLocked(ctx)
	if err != nil {
		return err
	}
	if !locked {
		return errors.New("Datastore is not locked. Run the `calicoctl datastore migrate lock` command in order to begin migration.")
	}
	return c.own(ctx, "datastore", "migrate", "export")
}

func (c *command) importAll(ctx context.Context) error {
	kubernetes, err := c.Conn.Kubernetes()
	if err != nil {
		return err
	}
	if !kubernetes {
		return errors.New("Invalid datastore type: etcdv3 to import to for datastore migration. Datastore type must be kubernetes")
	}
	return c.own(ctx, "datastore", "import", "-f", c.args.text(optFile.name))
}

// policyNames stores policies of older versions under the names that users know. calicoctl's documentation has it called once all agents know these.
func (c *command) policyNames(ctx context.Context) error {
	force := map[bool][]string{true: {"--force"}}[c.args.has(optMismatch.name)]
	out, err := c.quietly(ctx, append([]string{"datastore", "migrate-policy-names", "-o", "json"}, force...)...)
	if err != nil {
		return err
	}
	return wording.Migrated(c.Out, out)
}

// clusterDiags collects what is needed to find a fault of a cluster, in this directory.
func (c *command) clusterDiags(ctx context.Context) error {
	file := "calico-diagnostics-" + time.Now().UTC().Format("20060102_150405") + ".tar.gz"
	args := []string{"node", "diags", "--cluster", "--file=" + file}
	for _, flag := range []string{"since", "max-logs", "focus-nodes"} {
		if v := c.args.text(flag); v != "" {
			args = append(args, "--"+flag+"="+v)
		}
	}
	fmt.Fprintln(c.Out, "==== Begin collecting diagnostics. ====")
	if _, err := c.quietly(ctx, args...); err != nil {
		return err
	}
	fmt.Fprintf(c.Out, "\n==== Producing a diagnostics bundle. ====\nDiagnostic bundle created at ./%s\n", file)
	return nil
}
