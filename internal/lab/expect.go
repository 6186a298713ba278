package lab

import (
	"fmt"

	"github.com/twillnet/twill/internal/verdict/world"
)

const protoTCP = 6 // IANA protocol number

// expect returns the oracle's verdict for a cell.
func expect(w *world.World, c *Cell) error {
	src, err := w.Resolve(c.Src)
	if err != nil {
		return fmt.Errorf("expect %s -> %s: %w", c.Src, c.Dst, err)
	}
	dst, err := w.Resolve(c.Dst)
	if err != nil {
		return fmt.Errorf("expect %s -> %s: %w", c.Src, c.Dst, err)
	}
	family := 6
	if c.DstAddr.Is4() {
		family = 4
	}
	a := w.Judge(world.Query{Src: src, Dst: dst, Family: family, Proto: protoTCP, SrcPort: 40000, DstPort: c.Port})
	c.Want = a.Allowed
	c.By = fmt.Sprintf("%s %s", a.Decided.Reason, a.Decided.Policy)
	return nil
}
