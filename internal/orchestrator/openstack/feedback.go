package openstack

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"log/slog"
	"net/url"
	"strings"
	"sync"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/status"
	"github.com/twillnet/twill/internal/syncer"
)

// PortState is what the agent of a host reports of a port.
type PortState struct {
	ID     string `json:"id"`
	Host   string `json:"host"`
	Status string `json:"status"` // up, down or error; down, too, once it is reported no more
	Reason string `json:"reason,omitempty"`

	key     string // that of the datastore which says so
	changed uint64
	ours    uint64 // when its port was handed over to this plugin
}

// AgentState is that of an agent. It comes again with each report of the agent, so that Neutron sees it alive.
type AgentState struct {
	Host    string `json:"host"`
	Alive   bool   `json:"alive"`
	Started bool   `json:"started,omitempty"` // this is the first report of a run
	Version string `json:"version,omitempty"`

	changed uint64
}

// News is what has changed since somebody asked last.
type News struct {
	Epoch  string       `json:"epoch"` // of At: another one begins anew, with all there is
	At     uint64       `json:"at"`
	Ports  []PortState  `json:"ports"`
	Agents []AgentState `json:"agents"`
}

// mostGone is how many ports that are reported no more are remembered, until all begins anew.
const mostGone = 10000

// reported is an endpoint of a host. Each has one key, but for a moment two, when its agent comes to escape names otherwise than its former version.
type reported struct{ host, workload, id string }

// feedback follows what agents report.
type feedback struct {
	prefix string

	mu     sync.Mutex
	epoch  string
	at     uint64
	synced bool
	ports  map[reported]PortState
	gone   int
	agents map[string]AgentState
	wake   chan struct{} // closed at the next change
}

func newFeedback(r region) *feedback {
	return &feedback{prefix: status.Prefix(string(r)), epoch: rand.Text(), ports: map[reported]PortState{}, agents: map[string]AgentState{}, wake: make(chan struct{})}
}

// run follows the datastore until the context ends.
func (f *feedback) run(ctx context.Context, store datastore.Store, log *slog.Logger) {
	s := syncer.New(store, syncer.Config{Prefixes: []string{f.prefix}, Logger: log})
	go func() { _ = s.Run(ctx) }() // it ends with the context alone, and then closes its batches
	for b := range s.Batches() {
		f.take(b.Updates, b.InSync)
	}
}

// take takes over what has changed.
func (f *feedback) take(us []api.Update, inSync bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.synced = f.synced || inSync
	for _, u := range us {
		f.at++
		f.one(u)
	}
	if f.gone > mostGone {
		f.epoch, f.gone = rand.Text(), 0
		for key, p := range f.ports {
			if p.Status == "" {
				delete(f.ports, key)
			}
		}
	}
	close(f.wake)
	f.wake = make(chan struct{})
}

// one takes over a key. What is no report is passed over.
func (f *feedback) one(u api.Update) {
	parts := strings.Split(strings.TrimPrefix(u.Key, f.prefix), "/")
	host, err := url.PathUnescape(parts[0])
	if err != nil {
		return
	}
	switch {
	case len(parts) == 2 && parts[1] == "status":
		a := AgentState{Host: host, changed: f.at}
		var p status.Process
		if u.Value != nil && json.Unmarshal(u.Value, &p) == nil {
			a.Alive, a.Started, a.Version = true, p.FirstUpdate, p.Version
		}
		f.agents[host] = a
	case len(parts) == 6 && parts[1] == "workload" && parts[2] == orchestrator && parts[4] == "endpoint":
		f.port(u, host, parts[3], parts[5])
	}
}

func (f *feedback) port(u api.Update, host, workload, id string) {
	workload, err1 := url.PathUnescape(workload)
	id, err2 := url.PathUnescape(id)
	if err1 != nil || err2 != nil {
		return
	}
	of := reported{host, workload, id}
	was, known := f.ports[of]
	p := PortState{ID: id, Host: host, key: u.Key, changed: f.at, ours: was.ours}
	var e status.Endpoint
	switch {
	case u.Value == nil && (!known || was.key != u.Key): // of the latter, another key says how it is
		return
	case u.Value == nil && was.Status != "":
		f.gone++
	case u.Value == nil:
		return
	case json.Unmarshal(u.Value, &e) != nil || e.Status == "":
		p.Status, p.Reason = status.Error, "the report of its agent cannot be read"
	default:
		p.Status, p.Reason = e.Status, e.Reason
	}
	if u.Value != nil && known && was.Status == "" {
		f.gone--
	}
	f.ports[of] = p
}

// again has the report about a port's endpoint on its host count as new. While the machine was on its way there, it was passed over.
func (f *feedback) again(namespace string, p *Port) {
	key := reported{p.Host, namespace + "/" + p.DeviceID, p.ID}
	f.mu.Lock()
	defer f.mu.Unlock()
	was, ok := f.ports[key]
	if !ok {
		return
	}
	f.at++
	was.changed, was.ours = f.at, f.at
	f.ports[key] = was
	close(f.wake)
	f.wake = make(chan struct{})
}

// since waits until something has changed since a News, or the context ends, and returns what has. ours: of ports that were handed over to this
// plugin alone.
func (f *feedback) since(ctx context.Context, epoch string, at uint64, ours bool) News {
	for {
		f.mu.Lock()
		n, wake := f.news(epoch, at, ours), f.wake
		ready := f.synced && (n.Epoch != epoch || n.At != at && (!ours || len(n.Ports) > 0))
		f.mu.Unlock()
		if ready {
			return n
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return News{Epoch: epoch, At: at, Ports: []PortState{}, Agents: []AgentState{}}
		}
	}
}

func (f *feedback) news(epoch string, at uint64, ours bool) News {
	if epoch != f.epoch {
		at = 0
	}
	n := News{Epoch: f.epoch, At: f.at, Ports: []PortState{}, Agents: []AgentState{}}
	for _, p := range f.ports {
		if p.changed <= at || ours && p.ours <= at {
			continue
		}
		if p.Status == "" {
			p.Status = status.Down
		}
		n.Ports = append(n.Ports, p)
	}
	for _, a := range f.agents {
		if a.changed > at && !ours {
			n.Agents = append(n.Agents, a)
		}
	}
	return n
}
