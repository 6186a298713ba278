package show

import (
	"testing"
	"time"
)

func TestAgesAreThoseOfKubectl(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, tt := range []struct{ name, created, want string }{
		{"seconds", "2026-03-01T11:59:01Z", "59s"},
		{"minutes below ten have seconds", "2026-03-01T11:54:30Z", "5m30s"},
		{"hours", "2026-03-01T01:00:00Z", "11h"},
		{"days", "2026-02-20T12:00:00Z", "9d"},
		{"years", "2023-02-01T12:00:00Z", "3y29d"},
		{"another zone", "2026-03-01T13:00:00+02:00", "60m"},
		{"clocks that differ by a second", "2026-03-01T12:00:01Z", "0s"},
		{"nobody knows", "", "<unknown>"},
		{"nonsense", "yesterday", "<unknown>"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if got := Age(tt.created, now); got != tt.want {
				t.Errorf("%s is %s, want %s", tt.created, got, tt.want)
			}
		})
	}
}
