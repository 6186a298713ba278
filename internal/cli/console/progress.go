package console

import "github.com/twillnet/twill/internal/terminal"

// Working says on standard error how far long work is, until end is called: see [terminal.Begin]. What the command prints meanwhile,
// it prints as ever.
func (c *Stdio) Working(what string, total int) (p *terminal.Progress, end func()) {
	was := *c
	p = terminal.Begin(c.Err, what, total)
	c.Out, c.Err = p.Above(c.Out), p.Above(c.Err)
	return p, func() {
		p.End()
		*c = was
	}
}
