package conn

import (
	"os"
	"strings"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/lab"
)

// NotOfALab refuses the datastore of the lab on this machine to a daemon: what asks for it is a shell in which ETCD_ENDPOINTS was set
// to look at the lab, and the daemon would program this machine's own kernel with the lab's policies. Hosts of the lab reach it by
// another address.
func NotOfALab(daemon string, endpoints []string) error {
	for _, e := range endpoints {
		if strings.HasPrefix(e, "unix://"+lab.DefaultDir+"/") {
			return console.Usage("%s: %s is the datastore of the lab, whose hosts run their own daemons; this one would program the machine itself. Unset ETCD_ENDPOINTS, or name another with --etcd", daemon, e)
		}
	}
	return nil
}

// inLab says where an answer may be if no daemon of this host gives one.
func inLab(question string) string {
	if _, err := os.Stat(lab.DefaultDir); err != nil {
		return ""
	}
	return "; a lab is up, whose hosts have their own: twill lab exec h1 -- twill " + question
}
