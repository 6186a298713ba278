// Package statusfile says on the host itself which workloads' policy is in force, to programs that do not ask the agent.
//
// In: batches for the dataplane, and the states of endpoints as the agent learns them. Out: a directory with one file for each local
// workload endpoint that is up, and for no other. Names and content are those of upstream's agent, for whose files its CNI plugin waits
// (policy_setup_timeout_seconds), and in which its confd finds the workloads that are peers.
package statusfile

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"maps"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/intent"
	"github.com/twillnet/twill/internal/status"
)

// Directory is where the files are, below the prefix of the settings.
const Directory = "endpoint-status"

// Times between tries to write what could not be written.
const (
	minRetry = time.Second
	maxRetry = 30 * time.Second
)

// Workload is the content of a file.
type Workload struct {
	Interface string         `json:"ifaceName,omitempty"`
	MAC       string         `json:"mac,omitempty"`
	IPv4      []netip.Prefix `json:"ipv4Nets,omitempty"`
	IPv6      []netip.Prefix `json:"ipv6Nets,omitempty"`
}

// Writer keeps the directory. It is safe for concurrent use.
type Writer struct {
	log  *slog.Logger
	wake chan struct{}

	mu        sync.Mutex
	prefix    string // empty: no files
	complete  bool   // all endpoints are known
	workloads map[intent.EndpointID]*file

	// Of Run's goroutine.
	at      string            // the directory that was read; empty: none
	there   map[string]string // what is in it, by name
	failure string            // of the last try; empty: none
	backoff time.Duration
}

// file is what an endpoint's is to be.
type file struct {
	name    string
	of      Workload
	content string // of the file; empty: it was not asked for since the endpoint was sent
	up      bool
	gone    bool // the endpoint is deleted, which a former agent's file does not know
}

// New returns a Writer without a directory: see Configure.
func New(log *slog.Logger) *Writer {
	return &Writer{log: log, wake: make(chan struct{}, 1), workloads: map[intent.EndpointID]*file{}}
}

// Name is the name of a workload endpoint's file; false: the endpoint's name does not follow the rule, by which its parts are known.
func Name(id intent.EndpointID) (string, bool) {
	parts, ok := api.ParseWorkloadEndpointName(id.Name)
	if !ok || id.Kind != intent.Workload {
		return "", false
	}
	fields := []string{url.PathEscape(parts.Orchestrator), url.PathEscape(id.Namespace + "/" + parts.Workload), url.PathEscape(parts.Endpoint)}
	return strings.Join(fields, " "), true
}

// ours is whether an agent, of whichever make, could have written a file of that name.
func ours(name string) bool { return strings.Count(name, " ") == 2 }

// Configure takes the prefix of the directory; empty: there are to be no files. Those below a former prefix are removed. It may be called again and
// again.
func (w *Writer) Configure(prefix string) {
	w.mu.Lock()
	same := prefix == w.prefix
	w.mu.Unlock()
	if !same {
		w.change(func() { w.prefix = prefix })
	}
}

// Sent takes what the dataplane is asked for.
func (w *Writer) Sent(b intent.Batch) {
	if len(b.Removed) == 0 && len(b.Endpoints) == 0 {
		return
	}
	w.change(func() {
		for _, k := range b.Removed {
			if id, is := k.(intent.EndpointID); is && w.workloads[id] != nil {
				w.workloads[id].up, w.workloads[id].gone = false, true
			}
		}
		w.forget()
		for _, e := range b.Endpoints {
			name, ok := Name(e.ID)
			if !ok {
				continue
			}
			f := w.workloads[e.ID]
			if f == nil {
				f = &file{name: name}
				w.workloads[e.ID] = f
			}
			f.of, f.content, f.gone = Workload{e.Link, e.MAC, nets(e.Addrs, true), nets(e.Addrs, false)}, "", false
		}
	})
}

// forget drops workloads that are gone. Before all endpoints are known it keeps them: a former agent's file of one must go at once, and of one that
// was never named may stay.
func (w *Writer) forget() {
	if w.complete {
		maps.DeleteFunc(w.workloads, func(_ intent.EndpointID, f *file) bool { return f.gone })
	}
}

// nets are the addresses of a family.
func nets(addrs []netip.Addr, four bool) (out []netip.Prefix) {
	for _, a := range addrs {
		if a.Is4() == four {
			out = append(out, netip.PrefixFrom(a, a.BitLen()))
		}
	}
	return out
}

// Set takes states of endpoints that have changed.
func (w *Writer) Set(states map[intent.EndpointID]status.Endpoint) {
	if len(states) == 0 {
		return
	}
	w.change(func() {
		for id, s := range states {
			if f := w.workloads[id]; f != nil {
				f.up = s.Status == status.Up
			}
		}
	})
}

// Complete says that all endpoints are known: files of others are those of a former agent, and go.
func (w *Writer) Complete() { w.change(func() { w.complete = true; w.forget() }) }

func (w *Writer) change(f func()) {
	w.mu.Lock()
	f()
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// Run writes and removes files until ctx ends. It leaves them, for the agent that follows.
func (w *Writer) Run(ctx context.Context) error {
	retry := time.NewTimer(0)
	retry.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-w.wake:
		case <-retry.C:
		}
		if err := w.reconcile(); err != nil {
			w.backoff = min(max(2*w.backoff, minRetry), maxRetry)
			retry.Reset(w.backoff)
			continue
		}
		w.backoff = 0
		retry.Stop()
	}
}

// wanted is the directory, the files of all known workloads, and whether there are no others.
func (w *Writer) wanted() (at string, files map[string]file, complete bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.prefix == "" {
		return "", nil, w.complete
	}
	files = map[string]file{}
	for _, f := range w.workloads {
		if f.up && f.content == "" {
			text, _ := json.Marshal(f.of) // cannot fail: strings and prefixes
			f.content = string(text)
		}
		files[f.name] = *f
	}
	return filepath.Join(w.prefix, Directory), files, w.complete
}

// reconcile makes the directory what it is to be, as far as it can. What failed is in the error, and logged once.
func (w *Writer) reconcile() error {
	at, files, complete := w.wanted()
	if at != w.at {
		w.leave()
	}
	if at == "" {
		return nil
	}
	err := w.enter(at)
	if err == nil {
		err = w.write(files, complete)
	}
	if err != nil {
		w.at = "" // what is there is read again
		if err.Error() != w.failure {
			w.log.Error("the files that say which workloads are up cannot be written; it is tried again", "err", err)
		}
		w.failure = err.Error()
		return err
	}
	w.failure = ""
	return nil
}

// leave removes the files of a directory that the settings do not name any more.
func (w *Writer) leave() {
	at := w.at
	w.at = ""
	var failed []error
	for name := range w.there {
		failed = append(failed, remove(filepath.Join(at, name)))
	}
	w.there = nil
	if err := errors.Join(failed...); err != nil {
		w.log.Error("files of states of workloads stay where the settings do not want them any more: remove them", "directory", at, "err", err)
		return
	}
	if at != "" {
		_ = os.Remove(at) // unless somebody else has files there
	}
}

// enter reads a directory, which it makes if there is none.
func (w *Writer) enter(at string) error {
	if w.at == at {
		return nil
	}
	if err := os.MkdirAll(at, 0o755); err != nil {
		return err
	}
	entries, err := os.ReadDir(at)
	if err != nil {
		return err
	}
	w.at, w.there = at, map[string]string{}
	for _, e := range entries {
		if !ours(e.Name()) || e.IsDir() {
			continue
		}
		w.there[e.Name()], _ = readRegular(at, e) // what cannot be read is written again
	}
	return nil
}

// readRegular reads a file that is one: what is none, such as a pipe, would hold the agent up.
func readRegular(dir string, e fs.DirEntry) (string, error) {
	if !e.Type().IsRegular() {
		return "", errors.New("no regular file")
	}
	text, err := os.ReadFile(filepath.Join(dir, e.Name()))
	return string(text), err
}

// write makes the files of the directory those of the workloads that are up. A former agent's file of a workload that is not known yet stays.
func (w *Writer) write(files map[string]file, complete bool) error {
	var failed []error
	for name, f := range files {
		if there, is := w.there[name]; !f.up || is && there == f.content {
			continue
		}
		if err := w.put(name, f.content); err != nil {
			failed = append(failed, err)
			continue
		}
		w.there[name] = f.content
	}
	for name := range w.there {
		if f, known := files[name]; f.up || !known && !complete {
			continue
		}
		if err := remove(filepath.Join(w.at, name)); err != nil {
			failed = append(failed, err)
			continue
		}
		delete(w.there, name)
	}
	return errors.Join(failed...)
}

// put writes a file at once: nobody sees half of it.
func (w *Writer) put(name, text string) error {
	fresh := filepath.Join(filepath.Dir(w.at), "."+Directory+".new")
	if err := remove(fresh); err != nil {
		return err
	}
	if err := os.WriteFile(fresh, []byte(text), 0o644); err != nil {
		return err
	}
	return os.Rename(fresh, filepath.Join(w.at, name))
}

func remove(file string) error {
	if err := os.Remove(file); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
