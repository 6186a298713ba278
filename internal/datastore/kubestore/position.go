package kubestore

import (
	"encoding/json"
	"strconv"

	"github.com/twillnet/twill/internal/datastore"
)

// absent is the version, in a position, of a kind that the server did not have.
const absent = "-"

// positionOf is a position: of each kind, by its ID, the resourceVersion up to which all was seen.
func positionOf(versions map[string]string) datastore.Position {
	text, _ := json.Marshal(versions) // texts always encode
	return datastore.PositionOf(string(text))
}

// versionsOf reads a position; nil if it is none of ours.
func versionsOf(p datastore.Position) map[string]string {
	var out map[string]string
	if json.Unmarshal([]byte(p.String()), &out) != nil {
		return nil
	}
	return out
}

// Behind implements [datastore.Dated]: of some kind a has seen less than b. Versions of one kind are numbers that grow (Kubernetes promises it since
// 1.35); what is no number cannot be compared.
func (s *Store) Behind(a, b datastore.Position) bool {
	later := versionsOf(b)
	for id, version := range versionsOf(a) {
		n, err := strconv.ParseUint(version, 10, 64)
		m, laterErr := strconv.ParseUint(later[id], 10, 64)
		if err == nil && laterErr == nil && n < m {
			return true
		}
	}
	return false
}
