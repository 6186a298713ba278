package agent

import (
	"math"
	"runtime"
	"runtime/debug"

	"github.com/twillnet/twill/internal/config"
)

// limit applies settings to Go's runtime; -1 is its default, except that garbage is then collected near the limit of
// memory only, if there is one: without either, memory would grow without bound.
func limit(m config.Memory) {
	percent, bytes := m.GCPercent, int64(math.MaxInt64)
	if m.LimitMB > 0 {
		bytes = int64(m.LimitMB) << 20
	}
	if percent < 0 && m.LimitMB <= 0 {
		percent = 100
	}
	debug.SetGCPercent(percent)
	debug.SetMemoryLimit(bytes)
	if m.MaxProcs > 0 {
		runtime.GOMAXPROCS(m.MaxProcs)
	} else {
		runtime.SetDefaultGOMAXPROCS()
	}
}
