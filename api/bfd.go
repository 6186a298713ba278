package api

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// BFD says how soon a BGP session must know that its peer cannot be reached. The zero value: it need not.
type BFD struct {
	Interval   time.Duration // between two packets
	Multiplier uint8         // so many packets may be missing
}

// DefaultBFD is what sessions have where nothing else is said.
var DefaultBFD = BFD{Interval: 300 * time.Millisecond, Multiplier: 3}

// Limits of BFD. One packet that is lost, or late, is no dead path.
const (
	minBFDInterval   = 50 * time.Millisecond
	maxBFDInterval   = time.Minute
	minBFDMultiplier = 2
	bfdOff           = "off"
)

// ParseBFD reads the value of AnnotationBFD: off, an interval, or an interval and a multiplier with an x between.
func ParseBFD(text string) (BFD, error) {
	if text == bfdOff {
		return BFD{}, nil
	}
	interval, multiplier, has := strings.Cut(text, "x")
	d, err := time.ParseDuration(interval)
	out := BFD{Interval: d, Multiplier: DefaultBFD.Multiplier}
	if has && err == nil {
		var n uint64
		n, err = strconv.ParseUint(multiplier, 10, 8)
		out.Multiplier = uint8(n)
	}
	if err != nil || d < minBFDInterval || d > maxBFDInterval || d%time.Microsecond != 0 || out.Multiplier < minBFDMultiplier {
		return BFD{}, fmt.Errorf("is %q: want off, or an interval of %s to %s, perhaps with a multiplier of %d to 255: 300ms or 300msx3",
			clip(text), minBFDInterval, maxBFDInterval, minBFDMultiplier)
	}
	return out, nil
}

// bfd checks our annotation of BGPConfigurations and BGPPeers, and that there is no other of ours.
func (v *validator) bfd(annotations map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if !strings.HasPrefix(key, AnnotationPrefix) {
			continue
		}
		at := join("metadata.annotations", key)
		if key != AnnotationBFD {
			v.suggest(at, "is unknown: of Twill's own annotations this kind has one", AnnotationBFD)
			continue
		}
		if _, err := ParseBFD(annotations[key]); err != nil {
			v.fail(at, err.Error())
		}
	}
}
