package status

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"

	"github.com/twillnet/twill/api"
)

const (
	digestBuckets = 512 // so few policies share one, up to some thousands
	digestLast    = 32  // versions that are named each by itself
)

// Versions says which version of each of some resources is in force on a node, so that a reader who has the resources can tell of each whether it is, in 3 KB
// however many there are. Each resource is in one of 512 buckets, by its key; a bucket has a sum over the versions in it, which only one set of versions
// has. The versions that came last are named each by itself, since one that is late in a bucket hides the others there. The zero Versions has none.
//
// A reader may take a version that is in force for one that is not, and not the other way round, except with a chance of one in four billion.
type Versions struct {
	sums [digestBuckets]uint32
	last []uint64 // fingerprints, the newest last

	known map[string]uint64 // by key, the fingerprint of what was Set; nil at a reader
}

// Version is one version of a resource: what it says, and what the datastore says of when it came. What is written into its status makes no other.
type Version struct {
	Key  string
	Gone bool // there is none any more

	print uint64 // a number that stands for it
}

// VersionOf is the version that a store has; without a value it is gone.
func VersionOf(u api.Update) Version {
	if u.Value == nil {
		return Version{Key: u.Key, Gone: true}
	}
	return Version{Key: u.Key, print: fingerprint(u)}
}

// VersionsOf are those of all.
func VersionsOf(us []api.Update) []Version {
	out := make([]Version, len(us))
	for i, u := range us {
		out[i] = VersionOf(u)
	}
	return out
}

// Set notes that a version of a resource is in force, and reports whether that is news.
func (v *Versions) Set(u Version) (news bool) {
	if v.known == nil {
		v.known = map[string]uint64{}
	}
	at := bucketOf(u.Key)
	old, was := v.known[u.Key]
	if was == !u.Gone && old == u.print {
		return false
	}
	v.sums[at] -= uint32(old)
	delete(v.known, u.Key)
	if u.Gone {
		return true
	}
	v.known[u.Key] = u.print
	v.sums[at] += uint32(u.print)
	if v.last = append(v.last, u.print); len(v.last) > digestLast {
		v.last = v.last[1:]
	}
	return true
}

// Has reports whether the version that was Set last of a resource is this one; of one that is gone, whether there is none.
func (v *Versions) Has(u Version) bool {
	print, is := v.known[u.Key]
	return is == !u.Gone && print == u.print
}

// Without are the versions other than those of some keys.
func (v *Versions) Without(keys map[string]string) Versions {
	out := Versions{sums: v.sums}
	gone := map[uint64]bool{}
	for key := range keys {
		if f, ok := v.known[key]; ok {
			out.sums[bucketOf(key)] -= uint32(f)
			gone[f] = true
		}
	}
	for _, f := range v.last {
		if !gone[f] {
			out.last = append(out.last, f)
		}
	}
	return out
}

// Have are those of some resources that are in force as they are there. There must be all resources of their kinds.
func (v *Versions) Have(all []Version) map[string]bool {
	out := map[string]bool{}
	for i, has := range v.have(digestOf(all)) {
		if has {
			out[all[i].Key] = true
		}
	}
	return out
}

// digest is what a reader works out once of all resources, for any number of nodes.
type digest struct {
	sums   [digestBuckets]uint32
	at     []int    // the bucket of each
	prints []uint64 // its fingerprint
}

func digestOf(all []Version) *digest {
	d := &digest{at: make([]int, len(all)), prints: make([]uint64, len(all))}
	for i, u := range all {
		d.at[i], d.prints[i] = bucketOf(u.Key), u.print
		d.sums[d.at[i]] += uint32(d.prints[i])
	}
	return d
}

// have says of each of the resources whether it is in force.
func (v *Versions) have(d *digest) []bool {
	last := map[uint64]bool{}
	for _, f := range v.last {
		last[f] = true
	}
	out := make([]bool, len(d.at))
	for i, at := range d.at {
		out[i] = d.sums[at] == v.sums[at] || last[d.prints[i]]
	}
	return out
}

func bucketOf(key string) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(key))
	return int(h.Sum32() % digestBuckets)
}

// fingerprint is a number of what a resource says. Its generation is in it, where the datastore counts them, and its UID, so that one that is made again, or is what it
// was before, is another version; its revision is not, since that changes with each write of its status. What is no object stands for itself.
func fingerprint(u api.Update) uint64 {
	var is struct {
		Kind     string
		Metadata struct {
			UID        string
			Generation int64
		}
		Spec json.RawMessage
	}
	h := sha256.New()
	if json.Unmarshal(u.Value, &is) == nil && is.Spec != nil {
		fmt.Fprintf(h, "%s\x00%s\x00%s\x00%d\x00", u.Key, is.Kind, is.Metadata.UID, is.Metadata.Generation)
		_, _ = h.Write(is.Spec)
	} else {
		fmt.Fprintf(h, "%s\x00%s", u.Key, u.Value)
	}
	return binary.BigEndian.Uint64(h.Sum(nil))
}

// versionsJSON is the form in which they are stored: big-endian numbers.
type versionsJSON struct {
	Buckets []byte `json:"buckets,omitempty"`
	Last    []byte `json:"last,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (v Versions) MarshalJSON() ([]byte, error) {
	var out versionsJSON
	if v.sums != [digestBuckets]uint32{} {
		for _, s := range v.sums {
			out.Buckets = binary.BigEndian.AppendUint32(out.Buckets, s)
		}
	}
	for _, f := range v.last {
		out.Last = binary.BigEndian.AppendUint64(out.Last, f)
	}
	return json.Marshal(out)
}

// UnmarshalJSON implements [json.Unmarshaler]. What has another form says that nothing is in force.
func (v *Versions) UnmarshalJSON(text []byte) error {
	var in versionsJSON
	*v = Versions{}
	if err := json.Unmarshal(text, &in); err != nil {
		return err
	}
	for i := range len(in.Buckets) / 4 {
		if len(in.Buckets) == 4*digestBuckets {
			v.sums[i] = binary.BigEndian.Uint32(in.Buckets[4*i:])
		}
	}
	for i := range min(len(in.Last)/8, digestLast) {
		v.last = append(v.last, binary.BigEndian.Uint64(in.Last[8*i:]))
	}
	return nil
}
