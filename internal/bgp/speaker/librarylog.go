package speaker

import (
	"context"
	"log/slog"
	"sync"
)

// atLeast passes on what the library logs at a level or above, and notes one error that the library reports in its log alone.
type atLeast struct {
	slog.Handler
	level       *slog.LevelVar
	unprotected *unprotected
}

// Enabled is part of slog.Handler.
func (h atLeast) Enabled(ctx context.Context, l slog.Level) bool {
	return l == slog.LevelWarn || l >= h.level.Level() && h.Handler.Enabled(ctx, l)
}

// Handle is part of slog.Handler.
func (h atLeast) Handle(ctx context.Context, r slog.Record) error {
	h.unprotected.note(r)
	if r.Level < h.level.Level() || !h.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return h.Handler.Handle(ctx, r)
}

// WithAttrs is part of slog.Handler.
func (h atLeast) WithAttrs(as []slog.Attr) slog.Handler {
	h.Handler = h.Handler.WithAttrs(as)
	return h
}

// WithGroup is part of slog.Handler.
func (h atLeast) WithGroup(name string) slog.Handler {
	h.Handler = h.Handler.WithGroup(name)
	return h
}

// unprotected are peers whose password the kernel refused for the listener. The library logs that and goes on:
// anybody with that address could then open a session without a password. (GoBGP 4.8.0, BgpServer.addNeighbor;
// TestAPasswordThatTheKernelDoesNotTakeOpensNoSession fails if it logs that otherwise.)
type unprotected struct {
	mu    sync.Mutex // guards peers
	peers map[string]string
}

func (u *unprotected) note(r slog.Record) {
	if r.Message != "failed to set md5" {
		return
	}
	peer, why := "", ""
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "Key":
			peer = a.Value.String()
		case "Err":
			why = a.Value.String()
		}
		return true
	})
	u.mu.Lock()
	u.peers[peer] = why
	u.mu.Unlock()
}

// take returns why a peer's listener has no password, and forgets it; empty: it has.
func (u *unprotected) take(peer string) string {
	u.mu.Lock()
	defer u.mu.Unlock()
	why := u.peers[peer]
	delete(u.peers, peer)
	return why
}
