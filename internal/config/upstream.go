package config

import (
	"strconv"
	"strings"
	"time"
)

// Upstream returns settings in effect as upstream's agent passes them to a program: by their names with a capital letter, durations in seconds. Those that
// say where the datastore is, among which are passwords, are not in it.
func Upstream(values []Value) map[string]string {
	out := map[string]string{}
	for _, v := range values {
		if v.Param.Local {
			continue
		}
		text := v.Text
		if d, err := time.ParseDuration(text); err == nil && v.Param.Type == durationType {
			text = strconv.FormatFloat(d.Seconds(), 'f', -1, 64)
		}
		out[strings.ToUpper(v.Param.Name[:1])+v.Param.Name[1:]] = text
	}
	return out
}
