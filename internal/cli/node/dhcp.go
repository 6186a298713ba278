package node

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/stores"
	"github.com/twillnet/twill/internal/dhcp/dhcpd"
)

func (c *command) dhcpCmd() *cobra.Command {
	var l conn.Local
	var cfg dhcpd.Config
	region := ""
	cmd := &cobra.Command{
		Use:   "dhcp",
		Short: "Give this host's virtual machines of OpenStack their addresses by DHCP",
		Long: `A server of DHCP and DHCPv6 on each host with virtual machines of OpenStack, which also
sends router advertisements to those with IPv6. It follows what "twill openstack-plugin"
writes, and answers each machine with the addresses, network, router, routes, DNS servers
and name that Neutron has for its port. It keeps no leases: an address is the machine's
as long as its endpoint has it, and a renewal is answered from what is stored then.
"twill node --dhcp" runs it.

A request is answered only on the interface of an endpoint of this node, and only to
the endpoint's hardware address. Other DHCP servers of the host, such as libvirt's, are
left alone.`,
		Example: `  twill dhcp --etcd https://192.0.2.1:2379
  twill dhcp --node compute1 --lease 1h`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			if err := l.Read(); err != nil {
				return err
			}
			if is, err := c.Conn.Kubernetes(); err != nil {
				return err
			} else if is {
				return console.Usage("the datastore is Kubernetes, which has no place for Neutron's subnets; set DATASTORE_TYPE=etcdv3")
			}
			if region == "" {
				region = l.Settings.Region
			}
			at := l.Followed(&c.Conn)
			if err := conn.NotOfALab("dhcp", at.Endpoints); err != nil {
				return err
			}
			store, err := stores.Open(cmd.Context(), at)
			if err != nil {
				return err
			}
			defer store.Close()
			cfg.Node, cfg.Region, cfg.Store, cfg.Log = l.Node, region, store, c.LogAs(l.Settings.LogFormat)
			return dhcpd.Run(cmd.Context(), cfg)
		},
	}
	l.AddNodeFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&region, "region", os.Getenv("FELIX_OPENSTACKREGION"), "of Neutron's servers, where regions share a datastore, as of twill openstack-plugin (FELIX_OPENSTACKREGION)")
	f.DurationVar(&cfg.Lease, "lease", dhcpd.DefaultLease, "for how long an address is a machine's before it must ask again; it does so after half of it")
	return cmd
}
