package daemon

import (
	"context"
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

// save writes a plan atomically. It names passwords and holds none; what a
// network looks like is confidential, too.
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
type secretDir struct {
	dir      string
	lastRead remembered
}

func newSecretDir(dir string) *secretDir {
	return &secretDir{dir: dir, lastRead: remembered{}}
}

func (d *secretDir) path(s plan.Secret) string { return filepath.Join(d.dir, s.Name, s.Key) }

// use is part of passwords.
func (d *secretDir) use(context.Context, plan.Plan) {}

// changes is part of passwords.
func (d *secretDir) changes() <-chan struct{} { return nil }

// read is part of passwords.
func (d *secretDir) read(s plan.Secret) (string, error) {
	b, err := os.ReadFile(d.path(s))
	password := ""
	if err == nil {
		password, err = passwordOf(d.path(s), b)
	}
	return d.lastRead.or(s, password, err)
}

// stamps is part of passwords.
func (d *secretDir) stamps(p plan.Plan) string {
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
