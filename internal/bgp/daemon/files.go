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

// secretDir holds passwords: NAME/KEY is a file, as a mounted Kubernetes secret has it. One goroutine may read.
type secretDir struct {
	dir string
	// lastRead is what was read last. A file that cannot be read for a moment must not end a session that lives.
	lastRead map[plan.Secret]string
}

func newSecretDir(dir string) *secretDir {
	return &secretDir{dir: dir, lastRead: map[plan.Secret]string{}}
}

func (d *secretDir) path(s plan.Secret) string { return filepath.Join(d.dir, s.Name, s.Key) }

// read returns a password. With an error it is the last one that could be read, or empty if there was none.
func (d *secretDir) read(s plan.Secret) (string, error) {
	password, err := d.readFile(s)
	if err != nil {
		return d.lastRead[s], err
	}
	d.lastRead[s] = password
	return password, nil
}

// longestPassword is TCP_MD5SIG_MAXKEYLEN, the kernel's limit.
const longestPassword = 80

func (d *secretDir) readFile(s plan.Secret) (string, error) {
	b, err := os.ReadFile(d.path(s))
	if err != nil {
		return "", err
	}
	switch password := strings.TrimRight(string(b), "\r\n"); {
	case password == "":
		return "", fmt.Errorf("%s is empty", d.path(s))
	case len(password) > longestPassword:
		return "", fmt.Errorf("%s has %d bytes: TCP takes %d at most", d.path(s), len(password), longestPassword)
	default:
		return password, nil
	}
}

// stamps change when a file of a plan's passwords does.
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
