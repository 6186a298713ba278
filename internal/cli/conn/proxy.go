package conn

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/twillnet/twill/internal/datastore"
)

// ProxyVariable says whether clients of etcd on this host use its proxy (decision 090), and `twill node` runs one.
const ProxyVariable = "TWILL_ETCD_PROXY"

// EndpointsFileVariable names a file with the endpoints of etcd, for the proxy.
const EndpointsFileVariable = "TWILL_ETCD_ENDPOINTS_FILE"

// ProxySocket is where the proxy of this host listens: in the directory of the agent's socket.
func ProxySocket() string { return filepath.Join(filepath.Dir(AgentSocket()), "etcd-proxy.sock") }

// Proxied is how to reach etcd by the proxy of this host, and says nothing else: all its clients are the proxy's user.
func Proxied() datastore.Config {
	return datastore.Config{Endpoints: []string{"unix://" + ProxySocket()}}
}

// throughProxy replaces the way to etcd by that through the proxy, if the environment says that there is one, and no flag names another.
func throughProxy(direct datastore.Config, flag string) datastore.Config {
	via := Proxied()
	if on, err := ReadProxy(os.Getenv(ProxyVariable)); on && err == nil && cmp.Or(flag, via.Endpoints[0]) == via.Endpoints[0] {
		return via
	}
	return direct
}

// ReadProxy reads a value of ProxyVariable.
func ReadProxy(text string) (on bool, err error) {
	if text == "" {
		return false, nil
	}
	if on, err = strconv.ParseBool(text); err != nil {
		return false, fmt.Errorf("%s is %q: want true or false", ProxyVariable, text)
	}
	return on, nil
}
