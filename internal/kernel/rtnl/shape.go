package rtnl

import (
	"errors"
	"fmt"
	"math"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Shaper is a token bucket (tc-tbf(8)) at the root of a link, which has a handle of ours: what the link sends waits for tokens, and is dropped beyond Queue.
type Shaper struct {
	Rate  uint64 // bytes a second
	Burst uint64 // bytes that may be sent at once; at most what Rate sends in [MaxBurst]
	Queue uint32 // bytes that may wait
	// With Peak, a second bucket holds bursts to this rate, in bytes a second, and to PeakBurst bytes at once; zero: none. What is read back has no PeakBurst.
	Peak      uint64
	PeakBurst uint32
}

// MaxBurst is the longest time, in seconds, for which the kernel keeps unused tokens: it counts nanoseconds in 32 bits.
const MaxBurst = 4

const (
	ourMajor = 0x7717                             // of the handle of qdiscs at the root
	ourPrio  = 0x7717                             // of the filter at the ingress of a link
	tick     = 64                                 // nanoseconds, PSCHED_SHIFT of pkt_sched.h
	second   = 1_000_000_000                      // of the same
	ourRoot  = uint32(ourMajor) << 16             // its handle
	ingress  = uint32(netlink.HANDLE_MIN_INGRESS) // what is received, at the clsact qdisc
)

// ticks is the burst as the kernel has it, not less than what is asked for.
func (s Shaper) ticks() uint32 {
	t := math.Ceil(float64(s.Burst) * second / tick / float64(s.Rate))
	return uint32(min(t+1, MaxBurst*second/tick))
}

// Same reports whether a shaper that was read back is this one.
func (s Shaper) Same(is Shaper) bool {
	return s.Rate == is.Rate && s.Peak == is.Peak && s.Queue == is.Queue && s.ticks() == uint32(is.Burst)
}

// Shapers returns ours, by the index of the link. Their Burst is in the kernel's unit; see Same.
func (h *Handle) Shapers() (map[int]Shaper, error) {
	loose, err := h.nonStrict()
	if err != nil {
		return nil, err
	}
	out := map[int]Shaper{}
	err = dump(func() error {
		qs, err := loose.QdiscList(nil)
		clear(out)
		for _, q := range qs {
			if t, is := q.(*netlink.Tbf); is && t.Handle == ourRoot && t.Parent == netlink.HANDLE_ROOT {
				out[t.LinkIndex] = Shaper{Rate: t.Rate, Burst: uint64(t.Buffer), Queue: t.Limit, Peak: t.Peakrate}
			}
		}
		return err
	})
	return out, wrap(err, "list qdiscs")
}

// SetShaper makes or changes the shaper of a link. One of ours keeps the packets that wait; one of somebody else's is replaced.
func (h *Handle) SetShaper(link int, s Shaper) error {
	loose, err := h.nonStrict()
	if err != nil {
		return err
	}
	q := &netlink.Tbf{
		QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: ourRoot, Parent: netlink.HANDLE_ROOT},
		Rate:       s.Rate, Limit: s.Queue, Buffer: s.ticks(), Peakrate: s.Peak, Minburst: s.PeakBurst,
	}
	return wrap(loose.QdiscReplace(q), "link %d: rate of %d bytes a second", link, s.Rate)
}

// DeleteShaper removes ours from a link.
func (h *Handle) DeleteShaper(link int) error {
	loose, err := h.nonStrict()
	if err != nil {
		return err
	}
	q := &netlink.Tbf{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: ourRoot, Parent: netlink.HANDLE_ROOT}}
	return wrap(loose.QdiscDel(q), "link %d: delete its rate", link)
}

// AddIFB makes a device that is down. What is redirected to it goes on, from its queue, as if the link had received it then.
func (h *Handle) AddIFB(name string) error {
	return wrap(h.nl.LinkAdd(&netlink.Ifb{LinkAttrs: netlink.LinkAttrs{Name: name, TxQLen: -1}}), "add %s", name)
}

// Redirected returns to which device a filter of ours sends what a link receives; zero: there is none.
func (h *Handle) Redirected(link int) (to int, err error) {
	loose, err := h.nonStrict()
	if err != nil {
		return 0, err
	}
	fs, err := filters(loose, link, ingress)
	for _, f := range fs {
		if u, is := f.(*netlink.U32); is && u.Priority == ourPrio && u.RedirIndex != 0 {
			to = u.RedirIndex
		}
	}
	return to, wrap(err, "filters of link %d", link)
}

// filters lists those of a link; without a qdisc for them there are none.
func filters(nl *netlink.Handle, link int, parent uint32) (out []netlink.Filter, err error) {
	err = dump(func() error {
		out, err = nl.FilterList(&netlink.Device{LinkAttrs: netlink.LinkAttrs{Index: link}}, parent)
		return err
	})
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) {
		return nil, nil
	}
	return out, err
}

// Redirect sends all that a link receives to a device. Filters of others at the link stay, and come after ours or before it, by their numbers.
func (h *Handle) Redirect(link, to int) error {
	loose, err := h.nonStrict()
	if err != nil {
		return err
	}
	what := fmt.Sprintf("redirect link %d to %d", link, to)
	q := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	if err := loose.QdiscAdd(q); err != nil && !errors.Is(err, unix.EEXIST) {
		return wrap(err, "%s", what)
	}
	if err := loose.FilterDel(ourFilter(link)); err != nil && !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EINVAL) {
		return wrap(err, "%s", what)
	}
	f := ourFilter(link)
	f.Actions = []netlink.Action{netlink.NewMirredAction(to)}
	return wrap(loose.FilterAdd(f), "%s", what)
}

func ourFilter(link int) *netlink.U32 {
	return &netlink.U32{FilterAttrs: netlink.FilterAttrs{LinkIndex: link, Parent: ingress, Priority: ourPrio, Protocol: unix.ETH_P_ALL}}
}

// DeleteRedirect removes our filter, and what filters need if nobody else has one.
func (h *Handle) DeleteRedirect(link int) error {
	loose, err := h.nonStrict()
	if err != nil {
		return err
	}
	if err := loose.FilterDel(ourFilter(link)); err != nil {
		return wrap(err, "link %d: delete its filter", link)
	}
	for _, parent := range []uint32{ingress, netlink.HANDLE_MIN_EGRESS} {
		if fs, err := filters(loose, link, parent); err != nil || len(fs) > 0 {
			return wrap(err, "filters of link %d", link)
		}
	}
	q := &netlink.Clsact{QdiscAttrs: netlink.QdiscAttrs{LinkIndex: link, Handle: netlink.MakeHandle(0xffff, 0), Parent: netlink.HANDLE_CLSACT}}
	return wrap(loose.QdiscDel(q), "link %d: delete its clsact", link)
}
