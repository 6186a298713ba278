package cni

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/twillnet/twill/internal/attach/wire"
)

// mine reports whether the link is this container's: another one of the same pod may have taken its place.
func (e *ends) mine() (bool, error) {
	links, err := e.host.Links()
	for _, l := range links {
		if l.Name == e.request.Link {
			return l.Alias == "" || l.Alias == alias(e.request.Ref), err
		}
	}
	return false, err
}

// leaveNote tells an agent that does not run what it is to detach when it does.
func leaveNote(dir string, r wire.Ref) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := filepath.Join(dir, filepath.Base(r.ContainerID+"."+r.Ifname))
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name+".json")
}
