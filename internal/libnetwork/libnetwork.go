// Package libnetwork is a network driver and an IPAM driver of Docker's, by the names of upstream's: calico and calico-ipam.
//
// In: dockerd's calls, JSON over two sockets. Out: addresses of IPPools, a WorkloadEndpoint for each endpoint of Docker's, and a link that
// dockerd puts into the container; or the reason why not, which dockerd shows to its user, and nothing of it is left. Addresses and policy
// are the agent's, which is asked over its socket (package attach/wire) as the CNI plugin asks it: this process has no credentials, and
// nothing passes before policy is in force.
package libnetwork

import (
	"context"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/twillnet/twill/internal/serve"
)

// Names of the drivers, which are those of their sockets.
const (
	networkDriver = "calico"
	ipamDriver    = "calico-ipam"
)

// Config configures the plugin.
type Config struct {
	Agent    string // the agent's socket
	Dir      string // where dockerd looks for plugins' sockets
	Docker   string // the socket of Docker's API
	State    string // directory of what outlives a restart
	IfPrefix string // what the name of a container's interface begins with
	MTU      int    // of containers' interfaces, in bytes; zero: what the agent says
	// NoProfiles: endpoints have no profile, so that nothing reaches them, or leaves them, but by policy. Else they have that of their network's
	// name, which is made if it is not there.
	NoProfiles bool
	Labels     bool // endpoints get those of their containers that begin with org.projectcalico.label.
	// CollectAfter is how old what is left of an endpoint that Docker has no more must be to be taken away, and how often that is looked for.
	CollectAfter time.Duration
	Log          *slog.Logger
}

// DefaultDir is where dockerd looks.
const DefaultDir = "/run/docker/plugins"

// plugin is both drivers.
type plugin struct {
	cfg      Config
	docker   *docker
	networks networks
	made     made
	stale    map[string]time.Time // links of endpoints that Docker has no more, and since when
}

// callTimeout bounds one call; dockerd would wait for ever.
const callTimeout = 60 * time.Second

// Run serves both drivers until the context ends.
func Run(ctx context.Context, cfg Config) error {
	p := &plugin{cfg: cfg, docker: newDocker(cfg.Docker)}
	p.networks.dir, p.networks.docker = filepath.Join(cfg.State, "networks"), p.docker
	if err := os.MkdirAll(p.networks.dir, 0o700); err != nil {
		return err
	}
	failed := make(chan error, 2)
	for name, handler := range map[string]http.Handler{networkDriver: p.networkCalls(), ipamDriver: p.ipamCalls()} {
		listener, err := serve.Replace(ctx, serve.At{Network: "unix", Address: filepath.Join(cfg.Dir, name+".sock")})
		if err != nil {
			return err
		}
		s := &http.Server{Handler: http.TimeoutHandler(handler, callTimeout, `{"Err": "the agent did not answer in time"}`), ReadHeaderTimeout: callTimeout}
		defer s.Close()
		go func() { failed <- s.Serve(listener) }()
		cfg.Log.Info("answers dockerd", "driver", name, "socket", listener.Addr())
	}
	following, end := context.WithCancel(ctx)
	defer end()
	go p.follow(following)
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return nil
	}
}

func (p *plugin) networkCalls() http.Handler {
	mux, log := http.NewServeMux(), p.cfg.Log
	mux.Handle("POST /Plugin.Activate", activate("NetworkDriver"))
	for method, handler := range map[string]http.HandlerFunc{
		"GetCapabilities":             call(log, p.capabilities),
		"CreateNetwork":               call(log, p.createNetwork),
		"DeleteNetwork":               call(log, p.deleteNetwork),
		"CreateEndpoint":              call(log, p.createEndpoint),
		"DeleteEndpoint":              call(log, p.deleteEndpoint),
		"EndpointOperInfo":            call(log, p.endpointInfo),
		"Join":                        call(log, p.join),
		"Leave":                       call(log, p.leave),
		"ProgramExternalConnectivity": call(log, p.publish),
		"RevokeExternalConnectivity":  call(log, ignore[externalConnectivity]), // there is none
		"DiscoverNew":                 call(log, ignore[map[string]any]),       // of other hosts we know by the datastore
		"DiscoverDelete":              call(log, ignore[map[string]any]),
	} {
		mux.Handle("POST /NetworkDriver."+method, handler)
	}
	mux.Handle("/", unknown(log))
	return mux
}

func (p *plugin) ipamCalls() http.Handler {
	mux, log := http.NewServeMux(), p.cfg.Log
	mux.Handle("POST /Plugin.Activate", activate("IpamDriver"))
	for method, handler := range map[string]http.HandlerFunc{
		"GetCapabilities":         call(log, p.ipamCapabilities),
		"GetDefaultAddressSpaces": call(log, p.addressSpaces),
		"RequestPool":             call(log, p.requestPool),
		"ReleasePool":             call(log, ignore[poolID]), // it is an IPPool, and stays
		"RequestAddress":          call(log, p.requestAddress),
		"ReleaseAddress":          call(log, p.releaseAddress),
	} {
		mux.Handle("POST /IpamDriver."+method, handler)
	}
	mux.Handle("/", unknown(log))
	return mux
}

func ignore[In any](context.Context, In) (nothing, error) { return nothing{}, nil }
