package openstack

import "encoding/json"

// Port is a port as Neutron's API has it, with what the driver adds. See the API reference of networking, version 2.0.
type Port struct {
	ID                  string          `json:"id"`
	Name                string          `json:"name"`
	NetworkID           string          `json:"network_id"`
	ProjectID           string          `json:"project_id"`
	TenantID            string          `json:"tenant_id"` // the project of older clients
	DeviceID            string          `json:"device_id"`
	DeviceOwner         string          `json:"device_owner"`
	Host                string          `json:"binding:host_id"`
	Profile             json.RawMessage `json:"binding:profile"` // whatever an administrator wrote
	MAC                 string          `json:"mac_address"`
	AdminStateUp        bool            `json:"admin_state_up"`
	PortSecurityEnabled *bool           `json:"port_security_enabled"`
	SecurityGroups      []string        `json:"security_groups"`
	FixedIPs            []FixedIP       `json:"fixed_ips"`
	AddressPairs        []Pair          `json:"allowed_address_pairs"`
	DNSAssignment       []Assignment    `json:"dns_assignment"`
	Revision            int64           `json:"revision_number"`

	// What the driver adds.
	Bindings        []Binding         `json:"bindings"`             // those that are not active
	GroupNames      map[string]string `json:"security_group_names"` // of security groups, by ID
	FloatingIPs     []FloatingIP      `json:"floating_ips"`
	QoSRules        []QoSRule         `json:"qos_rules"` // of its policy, or of its network's
	NetworkName     string            `json:"network_name"`
	ProjectName     *string           `json:"project_name"` // nil: Keystone has not said it; what is stored stays
	ProjectParentID *string           `json:"project_parent_id"`
}

// migratingTo is the host to which Nova says, in the profile of the active binding, that it migrates the machine; empty: none that could be one.
func (p *Port) migratingTo() string {
	var profile struct {
		MigratingTo string `json:"migrating_to"`
	}
	if json.Unmarshal(p.Profile, &profile) != nil {
		return ""
	}
	return profile.MigratingTo
}

// Binding is one of a port to a host where its machine does not run, as the API of port bindings has it. Nova makes one for the target of a
// live migration, activates it when the machine is there, which makes the other one unbound, and deletes the one that is left over.
type Binding struct {
	Host    string `json:"host"`
	VIFType string `json:"vif_type"`
}

// FixedIP is an address of a port.
type FixedIP struct {
	Address string `json:"ip_address"`
	Gateway string `json:"gateway_ip"` // of its subnet; the driver adds it
}

// Pair is an address that a port may also use.
type Pair struct {
	Address string `json:"ip_address"` // or a prefix
	MAC     string `json:"mac_address"`
}

// Assignment is a name of a port.
type Assignment struct {
	FQDN string `json:"fqdn"`
}

// FloatingIP is an address that stands for a fixed one.
type FloatingIP struct {
	Fixed    string `json:"fixed_ip_address"`
	Floating string `json:"floating_ip_address"`
}

// QoSRule limits what a port receives (ingress) or sends (egress). Zero limits nothing.
type QoSRule struct {
	Type      string `json:"type"` // bandwidth_limit or packet_rate_limit; Neutron takes no others for our ports
	Direction string `json:"direction"`
	Kbps      int64  `json:"max_kbps"`       // of bandwidth_limit: kilobits a second
	BurstKb   int64  `json:"max_burst_kbps"` // kilobits, whatever its name is
	Kpps      int64  `json:"max_kpps"`       // of packet_rate_limit: thousands of packets a second
	BurstK    int64  `json:"max_burst_kpps"` // thousands of packets
}

// SecurityGroup is one with its rules.
type SecurityGroup struct {
	ID       string `json:"id"`
	Name     string `json:"name"`
	Stateful *bool  `json:"stateful"` // nil: it is
	Rules    []Rule `json:"security_group_rules"`
	Revision int64  `json:"revision_number"`
}

// Rule allows something.
type Rule struct {
	ID                   string          `json:"id"`
	Direction            string          `json:"direction"` // ingress or egress
	Ethertype            string          `json:"ethertype"` // IPv4 or IPv6
	Protocol             json.RawMessage `json:"protocol"`  // a name, a number as text or not, or null
	PortMin              *int            `json:"port_range_min"`
	PortMax              *int            `json:"port_range_max"`
	RemoteGroupID        string          `json:"remote_group_id"`
	RemoteAddressGroupID string          `json:"remote_address_group_id"`
	RemoteIPPrefix       string          `json:"remote_ip_prefix"`
}

// Subnet is a subnet, of which DHCP needs to know.
type Subnet struct {
	ID          string          `json:"id"`
	NetworkID   string          `json:"network_id"`
	CIDR        string          `json:"cidr"`
	Gateway     *string         `json:"gateway_ip"`
	EnableDHCP  bool            `json:"enable_dhcp"`
	HostRoutes  json.RawMessage `json:"host_routes"`
	DNSServers  []string        `json:"dns_nameservers"`
	RAMode      *string         `json:"ipv6_ra_mode"`
	AddressMode *string         `json:"ipv6_address_mode"`
}

// State is all that Neutron has.
type State struct {
	Ports          []Port          `json:"ports"`
	SecurityGroups []SecurityGroup `json:"security_groups"`
	Subnets        []Subnet        `json:"subnets"`
}
