package nftables

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nlsock"
)

// Commit applies a batch, all of it or nothing: one message, one transaction. An empty batch does nothing.
//
// A mistake in the batch is returned without asking the kernel. What the kernel refuses is a *BatchError that names every
// operation that failed, or an *OwnedError if only the owner of a table may; a stale Batch.GenID is a *GenerationError; ErrOutcomeUnknown is the only error after which the
// batch may have been applied.
func (c *Conn) Commit(b *Batch) error {
	if b.enc.err != nil {
		return b.enc.err
	}
	if len(b.ops) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	before, err := c.genID()
	if err != nil {
		return err
	}
	return c.commitUnwatched(b, before, func() error { return c.commit(b, before) })
}

// Check has the kernel validate a batch without applying it: the kernel aborts a transaction without its end message
// (nfnetlink_rcv_batch). Errors are those of Commit, but for what the kernel finds only when it walks the ruleset at the end,
// such as a chain that rejects and can be reached from postrouting (Linux 6.18); Commit names the operation then.
func (c *Conn) Check(b *Batch) error {
	if b.enc.err != nil {
		return b.enc.err
	}
	if len(b.ops) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	base := c.take(uint32(len(b.ops)) + 2)
	if err := c.send(b, base, false); err != nil {
		return err
	}
	a, err := c.answers(b, base)
	switch {
	case err != nil:
		return err
	case len(a.errs) > 0:
		return &BatchError{Ops: a.errs}
	case a.acked && !a.lost:
		return nil
	}
	return fmt.Errorf("nftables: the answer to a check was lost: %w", unix.ENOBUFS)
}

func (c *Conn) commit(b *Batch, before uint32) error {
	base := c.take(uint32(len(b.ops)) + 2)
	if err := c.send(b, base, true); err != nil {
		return err
	}
	a, err := c.answers(b, base)
	if err != nil {
		return err
	}
	switch {
	case a.stale:
		return &GenerationError{Want: b.GenID, Err: unix.ERESTART}
	case len(a.errs) > 0:
		return c.ownedBy(b, &BatchError{Ops: a.errs})
	case a.acked && !a.lost:
		return nil
	}
	after, err := c.genID()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return lostOutcome(before, after)
}

// lostOutcome decides what became of a batch whose answer did not arrive. A transaction adds one to the generation, so
// an unchanged one says that it failed, and one more that it was applied (were it somebody else's, ours would have had
// errors to report, which arrive before the buffer is full).
func lostOutcome(before, after uint32) error {
	switch after - before {
	case 0:
		return fmt.Errorf("nftables: transaction failed, and the reasons were lost: %w", unix.ENOBUFS)
	case 1:
		return nil
	}
	return ErrOutcomeUnknown
}

// send frames the batch and sends it: sequence numbers from base, the begin message being base itself. Without its end the
// kernel does not commit it.
func (c *Conn) send(b *Batch, base uint32, end bool) error {
	var head, tail encoder
	head.begin(unix.NFNL_MSG_BATCH_BEGIN, unix.NLM_F_REQUEST, 0, unix.NFNL_SUBSYS_NFTABLES, base)
	if b.GenID != 0 {
		head.u32(unix.NFNL_BATCH_GENID, b.GenID)
	}
	head.end()
	if end {
		tail.begin(unix.NFNL_MSG_BATCH_END, unix.NLM_F_REQUEST, 0, unix.NFNL_SUBSYS_NFTABLES, base+1+uint32(len(b.ops)))
	}

	body := b.enc.buf
	for i, o := range b.ops {
		binary.NativeEndian.PutUint32(body[o.at+8:], base+1+uint32(i))
		// Only the last message asks for an answer; all others answer when they fail. The flag of an earlier commit of
		// a batch that has grown since is taken back.
		flags := binary.NativeEndian.Uint16(body[o.at+6:]) &^ unix.NLM_F_ACK
		if i == len(b.ops)-1 {
			flags |= unix.NLM_F_ACK
		}
		binary.NativeEndian.PutUint16(body[o.at+6:], flags)
	}
	total := len(head.buf) + len(body) + len(tail.buf)
	if total+1024 > c.sndb {
		if err := c.setSendBuffer(total + total/4 + 1024); err != nil {
			return fmt.Errorf("nftables: send buffer for %d bytes: %w", total, err)
		}
	}
	c.drain()
	_, err := unix.SendmsgBuffers(c.sock.FD(), [][]byte{head.buf, body, tail.buf}, nil,
		&unix.SockaddrNetlink{Family: unix.AF_NETLINK}, 0)
	if err != nil {
		return fmt.Errorf("nftables: send %d bytes: %w", total, err)
	}
	return nil
}

// outcome is what the kernel answered to a batch.
type outcome struct {
	acked bool // the last message was answered
	stale bool
	lost  bool // some answers did not fit, or could not be allocated
	errs  []OpError
}

// answers collects the kernel's answers, which are all there when send returns.
func (c *Conn) answers(b *Batch, base uint32) (outcome, error) {
	var a outcome
	for {
		buf, err := c.receive()
		switch {
		case errors.Is(err, unix.EAGAIN):
			return a, nil
		case errors.Is(err, unix.ENOBUFS):
			a.lost = true // those that are there still count
			continue
		case err != nil:
			return a, fmt.Errorf("%w: read answer: %w", ErrOutcomeUnknown, err)
		}
		err = eachMessage(buf, func(m message) error {
			if m.typ == unix.NLMSG_ERROR {
				a.answer(b, m, int(m.seq-base)-1)
			}
			return nil
		})
		if err != nil {
			return a, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
		}
	}
}

func (a *outcome) answer(b *Batch, m message, index int) {
	if index < -1 || index > len(b.ops) {
		return // of an earlier exchange
	}
	err := nlsock.Errno(m.body)
	if err == nil {
		a.acked = a.acked || index == len(b.ops)-1
		return
	}
	if index < 0 || index >= len(b.ops) {
		a.stale = a.stale || errors.Is(err, unix.ERESTART)
		a.errs = append(a.errs, OpError{Op: "transaction", Index: -1, Err: err})
		return
	}
	o := b.ops[index]
	if o.destroy && errors.Is(err, unix.EINVAL) {
		err = &kernel.UnsupportedError{Feature: "nftables destroy", Err: err}
	}
	oe := OpError{Op: o.String(), Index: index, Err: err}
	oe.Detail, oe.Offset = extendedAnswer(m)
	if oe.Detail == "" && o.elements {
		oe.Detail = b.elementAt(index, int(oe.Offset))
	}
	a.errs = append(a.errs, oe)
}

// extendedAnswer reads the text and the offset that may follow the errno and the header of the message that failed.
func extendedAnswer(m message) (text string, offset uint32) {
	const skip = 4 + headerLen
	if m.flags&unix.NLM_F_ACK_TLVS == 0 || len(m.body) < skip {
		return "", 0
	}
	as, err := parseAttrs(m.body[skip:])
	if err != nil {
		return "", 0
	}
	if v := as.get(unix.NLMSGERR_ATTR_OFFS); len(v) >= 4 {
		offset = binary.NativeEndian.Uint32(v)
	}
	return as.str(unix.NLMSGERR_ATTR_MSG), offset
}

// elementAt names the element at an offset within a message.
func (b *Batch) elementAt(index, offset int) string {
	o := b.ops[index]
	end := len(b.enc.buf)
	if index+1 < len(b.ops) {
		end = b.ops[index+1].at
	}
	if offset <= 0 || o.at+offset+4 > end {
		return ""
	}
	body := b.enc.buf[o.at+offset : end]
	n := int(binary.NativeEndian.Uint16(body))
	if n < 4 || n > len(body) {
		return ""
	}
	el, err := decodeElement(body[4:n])
	if err != nil || el.Key == nil {
		return ""
	}
	return "element " + keyText(o.key, el.Key)
}
