package conn

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

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
	on, err := ReadProxy(os.Getenv(ProxyVariable))
	if on && err == nil && (flag == "" || flag == via.Endpoints[0]) {
		return via
	}
	return orProxy(direct, flag)
}

// orProxy takes the proxy where nothing says anything of etcd, and this host has a proxy and no member.
func orProxy(direct datastore.Config, flag string) datastore.Config {
	if via := Proxied(); flag == "" && slices.Equal(direct.Endpoints, []string{DefaultEndpoint}) && !isSocket(DefaultEndpoint) && isSocket(via.Endpoints[0]) {
		return via
	}
	return direct
}

func isSocket(endpoint string) bool {
	st, err := os.Stat(strings.TrimPrefix(endpoint, "unix://"))
	return err == nil && st.Mode()&os.ModeSocket != 0
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
