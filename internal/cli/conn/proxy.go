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

// throughProxy replaces the way to etcd by that through the proxy, if the environment says that there is one and flags name no other. Where a host was to have a
// proxy and has none, since a member is there, that is reached. A user whom a flag names stays that user.
func throughProxy(direct datastore.Config, flags etcdSpec) datastore.Config {
	via := Proxied()
	if flags.Username != "" {
		via.Username, via.Password = direct.Username, direct.Password
	}
	on, err := ReadProxy(os.Getenv(ProxyVariable))
	on = on && err == nil
	if on && flags.Endpoints == via.Endpoints[0] || on && flags.Endpoints == "" && (isSocket(via.Endpoints[0]) || nowhere(direct)) {
		return via
	}
	return orProxy(direct, flags)
}

// orProxy takes the proxy where nothing says anything of etcd, and this host has a proxy and no member.
func orProxy(direct datastore.Config, flags etcdSpec) datastore.Config {
	if via := Proxied(); flags.Endpoints == "" && nowhere(direct) && isSocket(via.Endpoints[0]) {
		return via
	}
	return direct
}

// nowhere reports whether a way to etcd is the default one, and leads to no member.
func nowhere(direct datastore.Config) bool {
	return slices.Equal(direct.Endpoints, []string{DefaultEndpoint}) && !isSocket(DefaultEndpoint)
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
