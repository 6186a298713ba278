package nftables

// CommitWith is Commit, and what happens at the same moment.
func (c *Conn) CommitWith(b *Batch, meanwhile func()) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, err := c.genID()
	if err != nil {
		return err
	}
	return c.commitUnwatched(b, before, func() error {
		meanwhile()
		return c.commit(b, before)
	})
}
