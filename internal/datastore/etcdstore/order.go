package etcdstore

import (
	"strconv"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// Revisions and positions are etcd's counter over all keys, in decimal.

func revisionOf(n int64) api.Revision { return api.RevisionOf(strconv.FormatInt(n, 10)) }

func positionOf(n int64) datastore.Position { return datastore.PositionOf(strconv.FormatInt(n, 10)) }

// number reads what these wrote; zero for what is none. What etcd never wrote is
// a revision that no key has.
func number(text string) int64 {
	if text == "" {
		return 0
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n <= 0 {
		return maxRevision
	}
	return n
}

// maxRevision is a revision that etcd never reaches.
const maxRevision = 1<<63 - 1

// Older says whether revision a was given before b.
func (s *Store) Older(a, b api.Revision) bool { return number(a.String()) < number(b.String()) }

// Behind says whether position a comes before b.
func (s *Store) Behind(a, b datastore.Position) bool { return number(a.String()) < number(b.String()) }
