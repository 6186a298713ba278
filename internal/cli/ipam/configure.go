package ipam

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) ipamConfigureCmd() *cobra.Command {
	var change settings
	var output console.Output
	cmd := &cobra.Command{
		Use:   "configure",
		Short: "Change how addresses are given out in the whole cluster",
		Long: `Change the settings that are given, and leave the others.

--strictaffinity: a node uses only addresses of its own blocks. Addresses that
are borrowed already stay in use.
--maxblocks: how many blocks of each family a node may have; 0 is the default
of 20. It needs strict affinity: else a node over its limit borrows.
--auto-allocate-blocks: nodes claim blocks by themselves. It can be false only
with strict affinity.
--ip-cooldown-seconds: how long a released address rests before it is given
out again.
--kubevirt-ip-persistence: whether a virtual machine of KubeVirt's keeps its
addresses over its pods: Enabled, which is the default, or Disabled.

Exit code: 0 it is so, 1 the settings contradict each other, 2 usage.`,
		Example: "  twill ipam configure --strictaffinity=true\n  twill ipam configure --maxblocks=4 --strictaffinity=true",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := cmd.Flags()
			if !slices.ContainsFunc([]string{"strictaffinity", "maxblocks", "max-blocks-per-host", "auto-allocate-blocks", "ip-cooldown-seconds", "kubevirt-ip-persistence"}, f.Changed) {
				return console.Usage("ipam configure: nothing to change: give --strictaffinity, --maxblocks, --auto-allocate-blocks, --ip-cooldown-seconds or --kubevirt-ip-persistence")
			}
			return c.changing(cmd.Context(), func(ctx context.Context, a *ipam.Allocator, v *ipam.Survey) error {
				cfg, err := a.SetConfig(ctx, func(cfg *api.IPAMConfig) { change.apply(f, cfg) })
				if err == nil {
					err = c.Conn.Long(ctx, c.mirrorConfiguration)
				}
				return c.configured(cfg, err, v, output)
			})
		},
	}
	f := cmd.Flags()
	f.BoolVar(&change.strict, "strictaffinity", false, "nodes do not borrow from each other's blocks")
	f.BoolVar(&change.auto, "auto-allocate-blocks", true, "nodes claim blocks by themselves")
	f.IntVar(&change.blocks, "maxblocks", 0, "blocks of a family that a node may have; 0: 20")
	f.IntVar(&change.blocks, "max-blocks-per-host", 0, "the same, as calicoctl calls it")
	f.IntVar(&change.cooldown, "ip-cooldown-seconds", 0, "for which a released address rests")
	f.StringVar(&change.persistence, "kubevirt-ip-persistence", "", "whether virtual machines of KubeVirt's keep their addresses: Enabled or Disabled")
	output.AddFlag(cmd)
	return cmd
}

// settings are those that can be changed.
type settings struct {
	strict, auto     bool
	blocks, cooldown int
	persistence      string
}

// apply changes those that flags give.
func (s settings) apply(f *pflag.FlagSet, cfg *api.IPAMConfig) {
	if f.Changed("strictaffinity") {
		cfg.StrictAffinity = s.strict
	}
	if f.Changed("auto-allocate-blocks") {
		cfg.AutoAllocateBlocks = s.auto
	}
	if f.Changed("maxblocks") || f.Changed("max-blocks-per-host") {
		cfg.MaxBlocksPerHost = s.blocks
	}
	if f.Changed("ip-cooldown-seconds") {
		cfg.CooldownSeconds = s.cooldown
	}
	if f.Changed("kubevirt-ip-persistence") {
		cfg.MachinePersistence = s.persistence
	}
}

// configured answers with what the settings are now, or why they could not be.
func (c *command) configured(cfg api.IPAMConfig, err error, v *ipam.Survey, output console.Output) error {
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	c.noteBorrowed(v, cfg)
	return c.showConfiguration(cfg, output)
}

// noteBorrowed says that strict affinity takes no address away.
func (c *command) noteBorrowed(v *ipam.Survey, cfg api.IPAMConfig) {
	if n := v.BorrowedIn(); n > 0 && cfg.StrictAffinity {
		fmt.Fprintf(c.Err, "borrowed addresses stay so until they are released, %d now: twill ipam show --show-borrowed\n", n)
	}
}

// mirrorConfiguration writes what is in force once more, in the two places where upstream's tools look for it.
func (c *command) mirrorConfiguration(ctx context.Context, s datastore.Store) error {
	defer resources.EnsureWith(ctx, s, c.Log())
	u, err := s.Get(ctx, resources.TheConfiguration)
	if err == nil {
		_, err = s.Update(ctx, u)
	}
	return err
}

// noteDiffering says on standard error that calicoctl's resource is not what is in force.
func (c *command) noteDiffering(ctx context.Context) error {
	return c.Conn.With(ctx, func(ctx context.Context, s datastore.Store) error {
		if note := resources.Differing(ctx, s); note != "" {
			fmt.Fprintf(c.Stdio.Err, "ipamconfiguration/default: %s\n", note)
		}
		return nil
	})
}

func (c *command) showConfiguration(cfg api.IPAMConfig, output console.Output) error {
	return c.Answer(output, console.Answer{
		Doc: map[string]any{
			"name": api.IPAMConfigurationName, "strictAffinity": cfg.StrictAffinity, "autoAllocateBlocks": cfg.AutoAllocateBlocks,
			"maxBlocksPerHost": cfg.MaxBlocksPerHost, "ipCooldownSeconds": cfg.CooldownSeconds,
			"kubeVirtVMAddressPersistence": persistenceOf(cfg),
		},
		Name: ".name", Kind: "ipamconfiguration",
		Table: func(w io.Writer, _ bool) error { return printConfiguration(w, cfg) },
	})
}

func printConfiguration(w io.Writer, cfg api.IPAMConfig) error {
	t := terminal.NewTable(w, "SETTING", "VALUE", "MEANS")
	t.Row("strictAffinity", strconv.FormatBool(cfg.StrictAffinity), "nodes do not borrow from each other's blocks")
	t.Row("autoAllocateBlocks", strconv.FormatBool(cfg.AutoAllocateBlocks), "nodes claim blocks by themselves")
	t.Row("maxBlocksPerHost", strconv.Itoa(cfg.MaxBlocksPerHost), "blocks of a family that a node may have; 0: 20")
	t.Row("ipCooldownSeconds", strconv.Itoa(cfg.CooldownSeconds), "for which a released address is not given out")
	t.Row("kubeVirtVMAddressPersistence", persistenceOf(cfg), "whether virtual machines keep their addresses over their pods")
	return t.Flush()
}

// persistenceOf is the value in force.
func persistenceOf(cfg api.IPAMConfig) string {
	if cfg.KeepsMachineAddresses() {
		return api.PersistenceEnabled
	}
	return api.PersistenceDisabled
}
