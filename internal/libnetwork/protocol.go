package libnetwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
)

// What follows is the protocol of Docker's plugins, of remote network drivers and of remote IPAM drivers
// (docs.docker.com/engine/extend/plugin_api; of moby's libnetwork, the pages remote and ipam): each call is a POST whose body and answer are JSON.

const contentType = "application/vnd.docker.plugins.v1.2+json"

const maxCall = 4 << 20

// nothing is an answer, or a question, without fields.
type nothing struct{}

// failure is the answer of a call that failed; dockerd shows Err to its user.
type failure struct {
	Err string
}

// errNoFields: what dockerd asks for again, since the plugin did not answer, may lack what it asked for (moby's pkg/plugins, callWithRetry).
var errNoFields = errors.New("the question has no fields, which dockerd leaves out when it repeats one: ask again")

// call handles one method. Fields that are not known are newer than this plugin, and mean nothing to a driver that does not ask for them.
func call[In, Out any](log *slog.Logger, f func(context.Context, In) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var in In
		var out any
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, maxCall)).Decode(&in)
		_, bodyless := any(in).(nothing)
		switch {
		case err == nil || bodyless && errors.Is(err, io.EOF):
			out, err = f(r.Context(), in)
		case errors.Is(err, io.EOF):
			err = errNoFields
		default:
			err = fmt.Errorf("the question cannot be read: %w", err)
		}
		if err != nil {
			refuse(w, log, r, http.StatusInternalServerError, err)
			return
		}
		w.Header().Set("Content-Type", contentType)
		_ = json.NewEncoder(w).Encode(out) // dockerd has gone
	}
}

func refuse(w http.ResponseWriter, log *slog.Logger, r *http.Request, status int, err error) {
	log.Error("refused", "call", r.URL.Path, "err", err)
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(failure{err.Error()})
}

// unknown answers calls that are newer than this plugin. With 404 dockerd goes on without those that a driver need not have.
func unknown(log *slog.Logger) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		refuse(w, log, r, http.StatusNotFound, errors.New("this driver has no such call"))
	}
}

// activate answers the first call on a socket, which has no body: what kind of plugin this is.
func activate(kind string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", contentType)
		_ = json.NewEncoder(w).Encode(map[string][]string{"Implements": {kind}})
	}
}

// capabilities are those of the network driver.
type capabilities struct {
	Scope             string
	ConnectivityScope string
}

// ipamData is what the IPAM driver gave to a network.
type ipamData struct {
	AddressSpace string
	Pool         string
	Gateway      string
}

type createNetwork struct {
	NetworkID string
	Options   map[string]any
	IPv4Data  []ipamData
	IPv6Data  []ipamData
}

type networkID struct {
	NetworkID string
}

// endpointInterface is that of an endpoint: prefixes and a hardware address, each empty if there is none.
type endpointInterface struct {
	Address     string
	AddressIPv6 string
	MacAddress  string
}

type createEndpoint struct {
	NetworkID  string
	EndpointID string
	Interface  endpointInterface
}

// createdEndpoint has what the question lacked, and nothing else: dockerd refuses what it said itself.
type createdEndpoint struct {
	Interface endpointInterface
}

type endpointID struct {
	NetworkID  string
	EndpointID string
}

type join struct {
	NetworkID  string
	EndpointID string
	SandboxKey string // names the container's namespace
}

type joined struct {
	InterfaceName         interfaceName
	Gateway               string
	GatewayIPv6           string
	StaticRoutes          []staticRoute
	DisableGatewayService bool // dockerd makes no other way out of the container
}

// interfaceName says which link of the host becomes the container's, and what its name begins with there.
type interfaceName struct {
	SrcName   string
	DstPrefix string
}

// staticRoute is a route of the container, over its link.
type staticRoute struct {
	Destination string
	RouteType   int
	NextHop     string
}

const routeConnected = 1 // without a next hop

type endpointInfo struct {
	Value map[string]any
}

type externalConnectivity struct {
	NetworkID  string
	EndpointID string
	Options    struct {
		Ports []any `json:"com.docker.network.portmap"`
	}
}

// Of the IPAM driver.

type addressSpaces struct {
	LocalDefaultAddressSpace  string
	GlobalDefaultAddressSpace string
}

type ipamCapabilities struct {
	RequiresMACAddress bool
}

type requestPool struct {
	AddressSpace string
	Pool         string
	SubPool      string
	Options      map[string]string
	V6           bool
}

type pool struct {
	PoolID string
	Pool   string
	Data   map[string]string
}

type poolID struct {
	PoolID string
}

type address struct {
	PoolID  string
	Address string
	Options map[string]string
}

type requestedAddress struct {
	Address string
	Data    map[string]string
}

// Options and data that dockerd names.
const (
	optionGeneric     = "com.docker.network.generic" // those of the user, by --opt
	optionInternal    = "com.docker.network.internal"
	optionIPv6        = "com.docker.network.enable_ipv6"
	optionIPv4        = "com.docker.network.enable_ipv4"
	dataGateway       = "com.docker.network.gateway"
	optionRequestType = "RequestAddressType" // of an address; dataGateway: it is to be a network's gateway
)
