package nftables

import (
	"errors"

	"golang.org/x/sys/unix"
)

// attempts to read what keeps changing.
const attempts = 10

// dumps that gather makes at most while enough reports that something is missing. On a busy machine reader and writer
// may run in lockstep, so that the same entry is missed many times.
const dumps = 40

// readConsistent reads something of one table until it is known to have been so at one moment. There are two proofs: nobody
// changed anything while it was read (the generation, which counts the changes of all tables of the namespace), or two
// reads, one after the other, found the same, so that all of it was so when the first ended. The second holds however
// often others change their tables; text must tell apart whatever matters. What changes itself all the time is
// ErrInterrupted.
func readConsistent[T any](c *Conn, read func() (T, error), text func(T) string) (T, error) {
	var none T
	last, known := "", false
	for range attempts {
		before, err := c.genID()
		if err != nil {
			return none, err
		}
		x, err := read()
		if errors.Is(err, errDumpInterrupted) || errors.Is(err, errGone) {
			known = false
			continue
		}
		if err != nil {
			return none, err
		}
		after, err := c.genID()
		if err != nil {
			return none, err
		}
		if before == after {
			return x, nil
		}
		now := text(x)
		if known && now == last {
			return x, nil
		}
		last, known = now, true
	}
	return none, ErrInterrupted
}

// errGone: an object that was just listed no longer exists. The next attempt lists again.
var errGone = errors.New("it was deleted while it was read")

// ofTable is for dumps that the kernel confines to one table: their place in it is not moved by what happens to others,
// so that nothing of it is passed over. That something changed meanwhile is steady's to judge.
func ofTable(err error) error {
	switch {
	case errors.Is(err, errDumpInterrupted):
		return nil
	case errors.Is(err, unix.ENOENT):
		return errGone
	}
	return err
}

// gather makes a dump of what all tables have, until the kernel says that one is of a piece. The kernel counts its place
// over all tables: where one comes or goes before it, a dump passes over something, or shows it twice. Where others
// change theirs all the time, no dump may ever be of a piece; then gather returns what any of them had, by key, as soon
// as enough says so, or with errDumpInterrupted after several attempts.
func gather[T any](dump func(func(T)) error, key func(T) string, enough func([]T) bool) ([]T, error) {
	var all []T
	seen := map[string]bool{}
	limit := attempts
	if enough != nil {
		limit = dumps
	}
	for range limit {
		var one []T
		err := dump(func(x T) { one = append(one, x) })
		if !errors.Is(err, errDumpInterrupted) {
			return one, err
		}
		for _, x := range one {
			if k := key(x); !seen[k] {
				seen[k] = true
				all = append(all, x)
			}
		}
		if enough != nil && enough(all) {
			return all, nil
		}
	}
	return all, errDumpInterrupted
}
