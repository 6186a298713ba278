package nftables

// Batch is a transaction in the making. Mistakes that can be seen without the kernel (a name too long, a key of the wrong
// length) are kept, and Commit returns them without sending anything. A Batch may be committed again after a failure.
type Batch struct {
	// Family of all objects in the batch; zero means FamilyINet.
	Family Family
	// GenID, when not zero, makes the commit fail with a GenerationError unless the ruleset is still of that generation.
	GenID uint32

	enc encoder
}

// NewBatch returns an empty transaction.
func NewBatch() *Batch { return &Batch{} }

// Len is the number of messages so far; Size their bytes.
func (b *Batch) Len() int  { return 0 }
func (b *Batch) Size() int { return 0 }

// Err is the first mistake so far.
func (b *Batch) Err() error { return nil }

// AddTable makes a table unless it exists.
func (b *Batch) AddTable(t Table) {}

// DeleteTable deletes a table with all that is in it; it must exist.
func (b *Batch) DeleteTable(name string) {}

// DestroyTable deletes a table if it exists. Commit fails with a kernel.UnsupportedError before Linux 6.3.
func (b *Batch) DestroyTable(name string) {}

// PurgeTable deletes a table if it exists, on any kernel: it adds, then deletes.
func (b *Batch) PurgeTable(name string) {}

// AddChain makes a chain unless it exists; an existing base chain takes the new policy.
func (b *Batch) AddChain(c Chain) {}

// FlushChain deletes all rules of a chain.
func (b *Batch) FlushChain(table, chain string) {}

// DeleteChain deletes a chain, which must have no rules and no one who jumps to it.
func (b *Batch) DeleteChain(table, chain string) {}

// AddRule appends a rule to its chain.
func (b *Batch) AddRule(r Rule) {}

// InsertRule puts a rule at the start of its chain, or before the rule with handle before when that is not zero.
func (b *Batch) InsertRule(r Rule, before uint64) {}

// ReplaceRule puts a rule in the place of the one with r.Handle.
func (b *Batch) ReplaceRule(r Rule) {}

// DeleteRule deletes the rule with that handle.
func (b *Batch) DeleteRule(table, chain string, handle uint64) {}

// AddSet makes a set or map unless it exists, in which case its shape must be the same.
func (b *Batch) AddSet(s Set) {}

// DeleteSet deletes a set, to which no rule may refer.
func (b *Batch) DeleteSet(table, set string) {}

// AddElements adds elements. An element that exists already is no error if it is the same (see SEMANTICS 4 for maps).
func (b *Batch) AddElements(s Set, els ...Element) {}

// DeleteElements deletes elements, which must exist. Only keys (and ends) count.
func (b *Batch) DeleteElements(s Set, els ...Element) {}

// DestroyElements deletes the elements that exist. Commit fails with a kernel.UnsupportedError before Linux 6.3.
func (b *Batch) DestroyElements(s Set, els ...Element) {}

// FlushSet deletes all elements of a set.
func (b *Batch) FlushSet(table, set string) {}
