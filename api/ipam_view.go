package api

import (
	"fmt"
	"strings"
)

// IPAMConfiguration is the one resource "default" that says how addresses are
// given out. etcd holds it as an [IPAMConfig], without metadata.
type IPAMConfiguration struct {
	Object
	Spec IPAMConfigurationSpec `json:"spec,omitempty"`
}

// IPAMConfigurationSpec is the body of an IPAMConfiguration.
type IPAMConfigurationSpec struct {
	StrictAffinity               bool   `json:"strictAffinity"`
	MaxBlocksPerHost             int    `json:"maxBlocksPerHost,omitempty"`
	AutoAllocateBlocks           bool   `json:"autoAllocateBlocks"`
	IPCooldownSeconds            int    `json:"ipCooldownSeconds,omitempty"`
	KubeVirtVMAddressPersistence string `json:"kubeVirtVMAddressPersistence,omitempty"` // see IPAMConfig.MachinePersistence
}

// BlockAffinity shows whose a block is. etcd holds it as an [Affinity], whose key says the rest.
type BlockAffinity struct {
	Object
	Spec BlockAffinitySpec `json:"spec,omitempty"`
}

// BlockAffinitySpec is the body of a BlockAffinity.
type BlockAffinitySpec struct {
	State   string `json:"state"`
	Node    string `json:"node"`
	Type    string `json:"type,omitempty"`
	CIDR    string `json:"cidr"`
	Deleted bool   `json:"deleted"`
}

// IPAMConfigurationName is the only one there is.
const IPAMConfigurationName = "default"

// Resource is the configuration as users see it.
func (c IPAMConfig) Resource() *IPAMConfiguration {
	r := New(KindIPAMConfiguration).(*IPAMConfiguration)
	r.Metadata.Name = IPAMConfigurationName
	r.Spec = IPAMConfigurationSpec{
		StrictAffinity: c.StrictAffinity, MaxBlocksPerHost: c.MaxBlocksPerHost, AutoAllocateBlocks: c.AutoAllocateBlocks, IPCooldownSeconds: c.CooldownSeconds,
		KubeVirtVMAddressPersistence: c.MachinePersistence,
	}
	return r
}

// Set makes the configuration say what a user's resource says. What another version wrote stays.
func (c *IPAMConfig) Set(s IPAMConfigurationSpec) {
	c.StrictAffinity, c.MaxBlocksPerHost, c.AutoAllocateBlocks, c.CooldownSeconds = s.StrictAffinity, s.MaxBlocksPerHost, s.AutoAllocateBlocks, s.IPCooldownSeconds
	c.MachinePersistence = s.KubeVirtVMAddressPersistence
}

// AffinityResource is the claim of a key as users see it; false if the key is not that of a claim.
func AffinityResource(u Update) (*BlockAffinity, bool) {
	own, p, ok := ParseAffinityKey(u.Key)
	if !ok {
		return nil, false
	}
	r := New(KindBlockAffinity).(*BlockAffinity)
	r.Metadata.Name = own.Name + "-" + strings.NewReplacer(".", "-", ":", "-", "/", "-").Replace(p.String())
	r.Spec = BlockAffinitySpec{State: "cannot be read", Node: own.Name, Type: own.Type, CIDR: p.String()}
	if a, err := DecodeAffinity(u); err == nil {
		r.Spec.State, r.Spec.Deleted = a.State, a.Deleted
	}
	return r, true
}

// Limits of upstream's.
const (
	mostBlocksPerHost = 1_000_000
	mostCooldown      = 1200
)

func (v *validator) ipam(r *IPAMConfiguration) {
	s := r.Spec
	if r.Metadata.Name != IPAMConfigurationName {
		v.fail("metadata.name", fmt.Sprintf("is %q: there is only one, with the name default", r.Metadata.Name))
	}
	if len(r.Metadata.Labels)+len(r.Metadata.Annotations) > 0 {
		v.fail("metadata", "has labels or annotations, and the datastore keeps none of it")
	}
	if !s.StrictAffinity && !s.AutoAllocateBlocks {
		v.fail("spec.autoAllocateBlocks", "and spec.strictAffinity cannot both be false: hosts could neither claim blocks nor would their own be kept for them")
	}
	if s.MaxBlocksPerHost < 0 || s.MaxBlocksPerHost > mostBlocksPerHost {
		v.fail("spec.maxBlocksPerHost", fmt.Sprintf("is %d: want 0 to %d", s.MaxBlocksPerHost, mostBlocksPerHost))
	}
	if s.MaxBlocksPerHost > 0 && !s.StrictAffinity {
		v.fail("spec.maxBlocksPerHost", "needs spec.strictAffinity: a host over its limit would borrow from others without end")
	}
	if s.IPCooldownSeconds < 0 || s.IPCooldownSeconds > mostCooldown {
		v.fail("spec.ipCooldownSeconds", fmt.Sprintf("is %d: want 0 to %d", s.IPCooldownSeconds, mostCooldown))
	}
	switch s.KubeVirtVMAddressPersistence {
	case "", PersistenceEnabled, PersistenceDisabled:
	default:
		v.fail("spec.kubeVirtVMAddressPersistence", fmt.Sprintf("is %q: want %s or %s", clip(s.KubeVirtVMAddressPersistence), PersistenceEnabled, PersistenceDisabled))
	}
}
