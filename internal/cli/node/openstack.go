package node

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/orchestrator/openstack"
)

func (c *command) openstackCmd() *cobra.Command {
	cfg := openstack.Config{}
	cmd := &cobra.Command{
		Use:   "openstack-plugin",
		Short: "Write what Neutron has into the datastore",
		Long: `Runs beside neutron-server, whose mechanism driver "twill" (the Python package
networking-twill) hands over each port, security group and subnet on --socket. They become
WorkloadEndpoints, NetworkPolicies and the keys of subnets, as upstream's networking-calico
writes them. What agents report goes back: a port is ACTIVE once packets can pass.

Neutron's database is the master. The driver hands over all of it when it starts, and
again every minute, so that a datastore that was lost is rebuilt. Of the datastore
nothing is touched but what is Neutron's: the namespace openstack, or
openstack-region-REGION. Several neutron-servers may each have a plugin of their own; one
of them is elected to resync and to write into Neutron what agents report.`,
		Example: `  twill openstack-plugin --etcd https://192.0.2.1:2379 --socket-group neutron
  twill openstack-plugin --region paris`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if is, err := c.Conn.Kubernetes(); err != nil {
				return err
			} else if is {
				return console.Usage("the datastore is Kubernetes: Neutron's ports are no pods, and it has no place for them; set DATASTORE_TYPE=etcdv3")
			}
			at, err := c.Conn.Config()
			if err != nil {
				return err
			}
			store, err := stores.Open(cmd.Context(), at)
			if err != nil {
				return err
			}
			defer store.Close()
			cfg.Store, cfg.Log = store, c.Log()
			return openstack.Run(cmd.Context(), cfg)
		},
	}
	cmd.AddCommand(c.openstackResyncCmd())
	f := cmd.Flags()
	f.StringVar(&cfg.Socket, "socket", openstack.DefaultSocket, "where the mechanism driver asks")
	f.StringVar(&cfg.Group, "socket-group", "", "whose members may ask, besides root, such as neutron")
	f.StringVar(&cfg.Region, "region", os.Getenv("FELIX_OPENSTACKREGION"), "of these neutron-servers, where regions share a datastore: openstackRegion of FelixConfiguration must be the same on its hosts (FELIX_OPENSTACKREGION)")
	return cmd
}
