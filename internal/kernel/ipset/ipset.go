// Package ipset lists and destroys the kernel's IP sets that iptables rules match (nf_tables has sets of its own).
//
// In: the network namespace of the calling thread. Out: the names of its sets, and that one is gone.
package ipset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// ErrInUse is of Destroy.
var ErrInUse = errors.New("a rule or another set refers to it")

// listSetname (IPSET_FLAG_LIST_SETNAME) asks for names alone: a set may have a million members.
const listSetname = 1 << 1

// Names lists the sets. A kernel without IP sets has none.
func Names() ([]string, error) {
	req := nl.NewNetlinkRequest(nl.IPSET_CMD_LIST|unix.NFNL_SUBSYS_IPSET<<8, nl.GetIpsetFlags(nl.IPSET_CMD_LIST))
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_INET, Version: nl.NFNETLINK_V0})
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_PROTOCOL, nl.Uint8Attr(nl.IPSET_PROTOCOL)))
	req.AddData(nl.NewRtAttr(nl.IPSET_ATTR_FLAGS|unix.NLA_F_NET_BYTEORDER, binary.BigEndian.AppendUint32(nil, listSetname)))
	messages, err := req.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil, nil // the kernel lacks this subsystem
	}
	if err != nil {
		return nil, fmt.Errorf("list ipsets: %w", err)
	}
	var out []string
	for _, m := range messages {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		for a := range nl.ParseAttributes(m[nl.SizeofNfgenmsg:]) {
			if a.Type == nl.IPSET_ATTR_SETNAME {
				out = append(out, nl.BytesToString(a.Value))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// Destroy removes a set, unless something refers to it. One that is not there is no error.
func Destroy(name string) error {
	err := netlink.IpsetDestroy(name)
	var own nl.IPSetError
	switch {
	case err == nil || errors.Is(err, unix.ENOENT):
		return nil
	case errors.As(err, &own) && int(own) == nl.IPSET_ERR_BUSY:
		err = ErrInUse
	}
	return fmt.Errorf("ipset %s: %w", name, err)
}
