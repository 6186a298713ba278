package simulate

import (
	"fmt"
	"time"
)

// Text is a figure for people.
func (f Figure) Text(v float64) string {
	switch f.Unit {
	case Bytes:
		return bytesText(uint64(max(v, 0)))
	case BytesPS:
		return bytesText(uint64(max(v, 0))) + "/s"
	case Seconds:
		return short(v)
	case PerSec:
		return number(v) + "/s"
	case Percent:
		return number(v) + " %"
	case Cores:
		return number(v) + " cores"
	}
	return number(v)
}

// short is a time with two or three digits.
func short(seconds float64) string {
	d := time.Duration(seconds * float64(time.Second))
	for unit := time.Nanosecond; ; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit).String()
		}
	}
}

// number has three digits, or all before the point; of a whole number, all.
func number(v float64) string {
	switch {
	case v >= 100, v == float64(int64(v)):
		return thousands(int64(v + 0.5))
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func bytesText(n uint64) string {
	v, i := float64(n), 0
	for ; v >= 1000 && i < 4; i++ {
		v /= 1000
	}
	return number(v) + " " + []string{"B", "kB", "MB", "GB", "TB"}[i]
}
