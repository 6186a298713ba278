package wire

import (
	"crypto/rand"
	"crypto/sha1" //nolint:gosec // names, of which one must equal Calico's; no secret
	"encoding/hex"
	"net"
	"strings"
)

// Ref names one attachment: an interface of a container, or of a pod, in a network. All names that go with it are made of it alone, so that whoever
// detaches it finds them without being told.
type Ref struct {
	Network     string `json:"network"`
	ContainerID string `json:"containerID"`
	Ifname      string `json:"ifname"` // in the container
	Pod         *Pod   `json:"pod,omitempty"`
	// Docker: it is an endpoint of Docker's, and ContainerID is that endpoint's, since Docker does not say which container it is for.
	Docker bool `json:"docker,omitempty"`
}

// FirstInterface is how runtimes call the first interface of a container. Its link, and the handle of its addresses, have the names that
// upstream's plugin gives to any interface; those of others have the interface in them, too.
const FirstInterface = "eth0"

// First reports whether it is its container's first interface.
func (r Ref) First() bool { return r.Ifname == FirstInterface }

// Handle is that of the attachment's addresses.
func (r Ref) Handle() string {
	if r.First() {
		return r.Network + "." + r.ContainerID
	}
	return r.Network + "." + r.ContainerID + "." + r.Ifname
}

// Handles are those under which its addresses may be: its own, and the one that older versions, and upstream's plugin, gave to each
// interface, under which there may be others' addresses.
func (r Ref) Handles() []string {
	first := r
	first.Ifname = FirstInterface
	if r.First() {
		return []string{r.Handle()}
	}
	return []string{r.Handle(), first.Handle()}
}

const (
	linkPrefix = "cali"
	linkDigits = 11 // with the prefix, the 15 characters that the kernel allows
)

// Link is the name of the host's end of its link. The network is not in it: an interface of a container is in one network.
func (r Ref) Link() string {
	switch {
	case !r.First() && r.Pod != nil:
		return hashedLink("k8s/" + r.Pod.Namespace + "." + r.Pod.Name + "/" + r.Ifname) // no name of a pod has a slash
	case !r.First():
		return hashedLink("cni/" + r.ContainerID + "/" + r.Ifname)
	case r.Pod != nil:
		return hashedLink(r.Pod.Namespace + "." + r.Pod.Name)
	}
	return linkPrefix + r.ContainerID[:min(len(r.ContainerID), linkDigits)]
}

// Links are the names that its link may have: its own, and the one that older versions, and upstream's plugin, gave to each interface.
func (r Ref) Links() []string {
	if r.First() {
		return []string{r.Link()}
	}
	first := r
	first.Ifname = FirstInterface
	return []string{r.Link(), first.Link()}
}

func hashedLink(of string) string {
	sum := sha1.Sum([]byte(of)) //nolint:gosec // see above
	return linkPrefix + hex.EncodeToString(sum[:])[:linkDigits]
}

// NewMAC generates the hardware address of a container's end: a locally administered unicast one (IEEE 802c).
func NewMAC() (string, error) {
	mac := make(net.HardwareAddr, 6)
	_, err := rand.Read(mac)
	mac[0] = mac[0]&^1 | 2
	return mac.String(), err
}

// NoteName is the name, without its suffix, of the file in which a plugin leaves its detachment. Of its parts only the last can have a plus.
func (r Ref) NoteName() string { return r.Network + "+" + r.ContainerID + "+" + r.Ifname }

// AliasPrefix begins the alias (IFLA_IFALIAS) of each link that a plugin of ours made on the host.
const AliasPrefix = "twill "

// Alias is that of the host's end of an attachment's link.
func (r Ref) Alias() string { return AliasOf(r.Network) + r.ContainerID + " " + r.Ifname }

// ParseAlias is whose link it is, but for the pod; false: no plugin of ours made it.
func ParseAlias(alias string) (Ref, bool) {
	parts := strings.Split(alias, " ")
	if len(parts) != 4 || parts[0]+" " != AliasPrefix {
		return Ref{}, false
	}
	return Ref{Network: parts[1], ContainerID: parts[2], Ifname: parts[3]}, true
}

// AliasOf begins the aliases of all links of a network.
func AliasOf(network string) string { return AliasPrefix + network + " " }
