package terminal

import (
	"fmt"
	"strings"
	"time"
)

// Ago is a length of time as people say it.
func Ago(now, then time.Time) string {
	d := now.Sub(then)
	switch {
	case d < time.Minute:
		return max(d, 0).Truncate(time.Second).String()
	case d < 48*time.Hour:
		return strings.TrimSuffix(d.Truncate(time.Minute).String(), "0s")
	}
	return fmt.Sprintf("%dd", int(d/(24*time.Hour)))
}
