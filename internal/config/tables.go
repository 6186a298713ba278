package config

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/twillnet/twill/api"
)

// TableRange is a range of numbers of tables of routes.
type TableRange struct{ Min, Max int }

func tables(name, value, help string, field func(*Settings) *[]TableRange) Param {
	return Param{
		Name: name, Type: "list of MIN-MAX", Default: value, Help: help,
		set: func(s *Settings, text string) error {
			var out []TableRange
			n := 0
			for _, w := range words(text) {
				low, high, _ := strings.Cut(w, "-")
				first, err := strconv.Atoi(low)
				last, lerr := strconv.Atoi(high)
				if err != nil || lerr != nil || first < 1 || last < first || last > api.MaxTable {
					return fmt.Errorf("has %q: want MIN-MAX, such as 1-250, of 1 to %d", w, api.MaxTable)
				}
				out, n = append(out, TableRange{first, last}), n+last-first+1
			}
			if n == 0 || n > api.MaxTables {
				return fmt.Errorf("has %d tables: want 1 to %d", n, api.MaxTables)
			}
			*field(s) = out
			return nil
		},
	}
}

// tablesText is how a FelixConfiguration's list would be written in the environment.
func tablesText(ranges []api.RouteTableRange) string {
	out := make([]string, len(ranges))
	for i, r := range ranges {
		out[i] = fmt.Sprintf("%d-%d", r.Min, r.Max)
	}
	return strings.Join(out, ",")
}
