package console

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// MostErrors bounds how many of one sort are listed.
const MostErrors = 10

// Few joins errors; of many it lists the first.
func Few(errs []error) error {
	if n := len(errs) - MostErrors; n > 0 {
		errs = append(errs[:MostErrors:MostErrors], fmt.Errorf("and %d more", n))
	}
	return errors.Join(errs...)
}

func Beginning(words []string, with string) []string {
	var out []string
	for _, w := range words {
		if strings.HasPrefix(w, strings.ToLower(with)) {
			out = append(out, w)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// orList is "a, b or c".
func orList(list []string) string {
	if len(list) < 2 {
		return strings.Join(list, "")
	}
	return strings.Join(list[:len(list)-1], ", ") + " or " + list[len(list)-1]
}

// Count is a number with its noun: 1 resource, 2 resources.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

// Bytes is a number of bytes as people say it.
func Bytes(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}
