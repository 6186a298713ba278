package crds

import (
	"fmt"
	"reflect"

	"github.com/twillnet/twill/api"
)

// networkLimits are those of tiers, pools, sets and endpoints.
var networkLimits = limits{
	reflect.TypeFor[api.IPPoolSpec]():        limitPool,
	reflect.TypeFor[api.IPReservationSpec](): func(n node) { n.field("reservedCIDRs").items().prefix() },
	reflect.TypeFor[api.NetworkSetSpec]():    func(n node) { n.field("nets").distinct().items().prefix() },
	reflect.TypeFor[api.IPAMConfigurationSpec](): func(n node) {
		n.field("maxBlocksPerHost").within(0, 1_000_000)
		n.field("ipCooldownSeconds").within(0, 1200)
		n.field("kubeVirtVMAddressPersistence").perhaps(api.PersistenceEnabled, api.PersistenceDisabled)
		strict := present("strictAffinity", "self.strictAffinity")
		n.must(strict+" || "+present("autoAllocateBlocks", "self.autoAllocateBlocks"),
			"and spec.strictAffinity cannot both be false: hosts could neither claim blocks nor would their own be kept for them", "autoAllocateBlocks")
		n.must(strict+" || !"+given("maxBlocksPerHost", "0"), "needs spec.strictAffinity: a host over its limit would borrow from others without end", "maxBlocksPerHost")
	},
	reflect.TypeFor[api.IPAMConfiguration]():  only(api.IPAMConfigurationName),
	reflect.TypeFor[api.ClusterInformation](): only("default"),
	reflect.TypeFor[api.HostEndpointSpec](): func(n node) {
		n.require("node").field("node").like(dnsName).longest(longestName)
		n.field("interfaceName").like(`\*|` + group(interfaceName) + `?`)
		n.field("expectedIPs").distinct().items().address()
		n.field("profiles").distinct().items().like(dnsName).longest(longestName)
		n.must(given("interfaceName", "''")+" || "+listed("expectedIPs"), `is missing, and so is spec.expectedIPs: give one of them, or "*" for all interfaces`, "interfaceName")
	},
	reflect.TypeFor[api.EndpointPort](): func(n node) {
		n.require("name", "protocol", "port")
		n.field("name").like(wordChars + `{1,128}`)
		n.field("protocol").like(`TCP|UDP|SCTP|0*(6|17|132)`)
		n.field("port").within(1, 65535)
		n.must("type(self.protocol) != int || self.protocol == 6 || self.protocol == 17 || self.protocol == 132", "want TCP, UDP or SCTP", "protocol")
	},
	reflect.TypeFor[api.CalicoNodeStatusSpec](): func(n node) {
		n.require("node", "classes", "updatePeriodSeconds").field("node").like(dnsName).longest(longestName)
		n.field("classes").notEmpty().distinct().items().one(api.ClassAgent, api.ClassBGP, api.ClassRoutes)
		n.field("updatePeriodSeconds").within(0, 24*60*60)
	},
}

// limitTier holds names, and what the built-in tiers are.
func limitTier(n node) {
	n.mustStay("!self.metadata.name.contains('.') && size(self.metadata.name) <= 63", "metadata.name: want at most 63 lower-case letters, digits and dashes")
	for _, name := range builtinTiers {
		t := api.New(api.KindTier).(*api.Tier)
		t.Metadata.Name = name
		api.Default(t)
		fixed := fmt.Sprintf("of the built-in tier %s is %.0f and cannot be changed", name, *t.Spec.Order)
		n.mustStay(fmt.Sprintf("self.metadata.name != '%s' || !has(self.spec) || !has(self.spec.order) || self.spec.order == %.1f", name, *t.Spec.Order), fixed, "spec", "order")
		fixed = fmt.Sprintf("of the built-in tier %s is %s and cannot be changed", name, *t.Spec.DefaultAction)
		n.mustStay(fmt.Sprintf("self.metadata.name != '%s' || !has(self.spec) || !has(self.spec.defaultAction) || self.spec.defaultAction == '%s'", name, *t.Spec.DefaultAction),
			fixed, "spec", "defaultAction")
	}
}

// blockSize is the length of a pool's blocks, of this object or the old one: what [api.Default] fills in depends on the family.
func blockSize(of string) string {
	size := func(cidr string) int {
		p := api.New(api.KindIPPool).(*api.IPPool)
		p.Spec.CIDR = cidr
		api.Default(p)
		return p.Spec.BlockSize
	}
	return fmt.Sprintf("(has(%[1]s.blockSize) && %[1]s.blockSize != 0 ? %[1]s.blockSize : %[1]s.cidr.contains(':') ? %[2]d : %[3]d)", of, size("fd00::/48"), size("10.0.0.0/8"))
}

// limitPool has rules of one object, which may cost something.
func limitPool(n node) {
	modes := []string{"Never", "Always", "CrossSubnet"}
	n.require("cidr")
	cidr := n.field("cidr").longest(49) // eight groups, the last two as an IPv4 address, and a length
	cidr.must("isCIDR(self)", "want a prefix with its length")
	cidr.must("!isCIDR(self) || cidr(self) == cidr(self).masked()", "has bits beyond its length")
	for _, l := range []string{"169.254.0.0/16", "fe80::/10"} {
		cidr.must(fmt.Sprintf("!isCIDR(self) || !cidr('%[1]s').containsCIDR(cidr(self)) && !cidr(self).containsCIDR(cidr('%[1]s'))", l), "overlaps "+l+", where addresses hold on one link only")
	}
	cidr.must("self == oldSelf || isCIDR(self) && isCIDR(oldSelf) && cidr(self) == cidr(oldSelf).masked()", "cannot be changed: make another pool")
	n.field("vxlanMode").perhaps(modes...).unless("Never")
	n.field("ipipMode").perhaps(modes...).unless("Never")
	n.each(func(f node) { f.longest(longestSelector) }, "nodeSelector", "namespaceSelector")
	n.field("nodeSelector").unless("all()")
	n.field("allowedUses").distinct().unless([]any{"Workload", "Tunnel"}).items().one("Workload", "Tunnel", "LoadBalancer")
	n.field("assignmentMode").one(api.AssignAutomatic, api.AssignManual).unless(api.AssignAutomatic)

	on := func(mode string) string { return present(mode, "!(self."+mode+" in ['', 'Never'])") }
	n.must("!("+on("vxlanMode")+" && "+on("ipipMode")+")", "and spec.vxlanMode cannot both be on: set one of them to Never", "ipipMode")
	n.must("!self.cidr.contains(':') || !"+on("ipipMode"), "is possible for IPv4 only: set it to Never", "ipipMode")
	size := blockSize("self")
	n.must("self.cidr.contains(':') ? "+size+" >= 116 && "+size+" <= 128 : "+size+" >= 20 && "+size+" <= 32", "want 20 to 32, or 116 to 128 for IPv6", "blockSize")
	n.must(present("disabled", "self.disabled")+" || !isCIDR(self.cidr) || cidr(self.cidr).prefixLength() <= "+size,
		"has not room for one block: make it larger, or spec.blockSize greater", "cidr")
	n.must(size+" == "+blockSize("oldSelf"), "cannot be changed: make another pool", "blockSize")

	balances := func(of string) string {
		return fmt.Sprintf("(has(%[1]s.allowedUses) && 'LoadBalancer' in %[1]s.allowedUses)", of)
	}
	const forBalancers = " for a pool for load balancers"
	n.must("!"+balances("self")+" || size(self.allowedUses) == 1", "has LoadBalancer beside others: a pool for load balancers is for nothing else", "allowedUses")
	n.must("!"+balances("oldSelf")+" || "+balances("self"), "cannot be changed from LoadBalancer: make another pool", "allowedUses")
	for _, mode := range []string{"vxlanMode", "ipipMode"} {
		n.must("!"+balances("self")+" || !"+on(mode), "is not possible"+forBalancers+": set it to Never", mode)
	}
	n.must("!"+balances("self")+" || !"+present("disableBGPExport", "self.disableBGPExport"), "must be false"+forBalancers, "disableBGPExport")
	n.must("!"+balances("self")+" || !has(self.nodeSelector) || self.nodeSelector in ['', 'all()']", "must be all()"+forBalancers+", whose addresses are on no node", "nodeSelector")
}
