package show

import (
	"time"

	"k8s.io/apimachinery/pkg/util/duration"
)

// Age is how long ago a resource was made, as kubectl says it.
func Age(created string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, created)
	if err != nil {
		return "<unknown>"
	}
	return duration.HumanDuration(now.Sub(at))
}
