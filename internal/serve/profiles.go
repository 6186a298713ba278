package serve

import (
	"net/http"
	"net/http/pprof"
)

// Profiles serves those of Go's runtime, below /debug/pprof/. They say much of a process, so it is for listeners on loopback unless a user asks for more.
func Profiles() http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /debug/pprof/", pprof.Index)
	m.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	m.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	m.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	m.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	return m
}
