package tunnel

import (
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/kernel"
)

// checksums has the kernel fill in the checksums of packets before they come to a device, or the device, as settings say. Without a setting, and with
// a kernel whose devices do it right, what somebody else chose stays.
//
// Before Linux 5.7 NAT changed the checksum of an encapsulating UDP packet that has none, and the receiver dropped it.
func (d *Driver) checksums(v *device) error {
	works := kernel.AtLeast(5, 7)
	byKernel := d.sums == intent.ChecksumsByKernel || d.sums == 0 && !works
	if d.sums == 0 && works && !v.plain {
		return nil
	}
	is, err := d.rtnl.TxChecksum(v.name)
	if err != nil {
		return err
	}
	if is == byKernel {
		if err := d.rtnl.SetTxChecksum(v.name, !byKernel); err != nil {
			return err
		}
	}
	v.plain = byKernel
	return nil
}
