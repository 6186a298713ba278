package api

import (
	"reflect"
	"strings"
)

// laterKinds are kinds of Calico's that come with later issues.
var laterKinds = wordSet(`IPAMConfig IPAMBlock IPAMHandle`)

func wordSet(text string) map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(text) {
		out[w] = true
	}
	return out
}

// KnownSetting reports whether a FelixConfiguration of Calico's has a field of this name, or Calico's agent a parameter, in any case. Why is the reason
// where Twill does not act on it; empty: it does.
func KnownSetting(name string) (why string, known bool) {
	t := reflect.TypeFor[FelixConfigurationSpec]()
	for _, u := range unhonoured {
		if u.Type == t && strings.EqualFold(u.Field, name) {
			return Notice{Fate: u.Fate, Why: u.Why}.Reason(), true
		}
	}
	if why := agentsOwn[strings.ToLower(name)]; why != "" {
		return Notice{Fate: Warned, Why: why}.Reason(), true
	}
	return "", fieldByName(t, name) != nil
}

// nearest finds the word that was probably meant: the one with the fewest
// changes, if these are few for its length.
func nearest(word string, among []string) string {
	best, bestAt := "", 1+min(3, (len(word)+1)/3)
	if len(word) > 64 {
		return ""
	}
	for _, w := range among {
		if d := distance(strings.ToLower(word), strings.ToLower(w)); d < bestAt {
			best, bestAt = w, d
		}
	}
	return best
}

// distance counts the bytes to change, add or remove to make b of a.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost = 1 + min(corner, row[j], row[j+1])
			}
			corner, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
