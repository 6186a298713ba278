package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/twillnet/twill/internal/bgp/plan"
)

// load reads a plan that save wrote.
func load(file string) (plan.Plan, error) {
	var p plan.Plan
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &p)
	}
	return p, err
}

// save writes a plan so that a crash leaves the old one or the new one. It names passwords and holds none; what a
// network looks like is nobody else's business either.
func save(file string, p plan.Plan) error {
	b, err := json.Marshal(p)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(file+".new", os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// secretDir holds passwords: NAME/KEY is a file, as a mounted Kubernetes secret has it.
type secretDir struct{ dir string }

func (d secretDir) path(s plan.Secret) string { return filepath.Join(d.dir, s.Name, s.Key) }

func (d secretDir) read(s plan.Secret) (string, error) {
	b, err := os.ReadFile(d.path(s))
	if err != nil {
		return "", err
	}
	if password := strings.TrimRight(string(b), "\r\n"); password != "" {
		return password, nil
	}
	return "", fmt.Errorf("%s is empty", d.path(s))
}

// marks change when a file of a plan's passwords does.
func (d secretDir) marks(p plan.Plan) string {
	var out strings.Builder
	for _, s := range p.Sessions {
		if s.Password == nil {
			continue
		}
		if info, err := os.Stat(d.path(*s.Password)); err == nil {
			fmt.Fprintln(&out, s.Peer, info.ModTime(), info.Size())
		}
	}
	return out.String()
}
