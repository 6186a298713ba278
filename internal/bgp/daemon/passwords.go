package daemon

import (
	"context"
	"fmt"
	"strings"

	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
)

// DefaultSecrets is where passwords are that are files: a folder for each secret, a file for each of its keys.
const DefaultSecrets = "/etc/twill/secrets"

// passwords is where those of sessions come from: files of this host, or Secrets of Kubernetes.
type passwords interface {
	// use says which plan's passwords are asked for from now on. It waits a moment for those that have not been asked for before.
	use(ctx context.Context, p plan.Plan)
	// read returns a password. With an error it is the last one that could be read, or empty if there was none. One goroutine may call it.
	read(s plan.Secret) (string, error)
	// stamps change when a password of a plan does.
	stamps(p plan.Plan) string
	// changes has an element when stamps may have changed; nil if that must be looked for.
	changes() <-chan struct{}
}

// newPasswords is where the passwords of a configuration come from, until the context ends.
func newPasswords(ctx context.Context, cfg Config) (passwords, error) {
	switch {
	case cfg.Secrets != "":
		return newSecretDir(cfg.Secrets), nil
	case cfg.Store.Type != "kubernetes":
		return newSecretDir(DefaultSecrets), nil
	}
	client, err := apiserver.New(cfg.Store)
	if err != nil {
		return nil, err
	}
	return newClusterSecrets(ctx, apiserver.Secrets{Client: client, Namespace: cfg.SecretsNamespace}, cfg.Log.With("part", "secrets")), nil
}

// CheckPasswords reads the passwords of a plan's sessions from where Run would have them, and returns for each why it cannot be had; empty: it can.
// Of the configuration, Store, Secrets, SecretsNamespace and Log count. An error means that none could be asked for.
func CheckPasswords(ctx context.Context, cfg Config, p plan.Plan) (map[plan.Secret]string, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from, err := newPasswords(ctx, cfg)
	if err != nil {
		return nil, err
	}
	from.use(ctx, p)
	out := map[plan.Secret]string{}
	for _, s := range p.Sessions {
		if s.Password == nil {
			continue
		}
		out[*s.Password] = ""
		if _, err := from.read(*s.Password); err != nil {
			out[*s.Password] = err.Error()
		}
	}
	return out, nil
}

// remembered are passwords that were read. What cannot be read for a moment must not end a session that lives.
type remembered map[plan.Secret]string

// or is a password that was read, or with the error that it could not be, the last one.
func (r remembered) or(s plan.Secret, password string, err error) (string, error) {
	if err != nil {
		return r[s], err
	}
	r[s] = password
	return password, nil
}

// longestPassword is TCP_MD5SIG_MAXKEYLEN, the kernel's limit.
const longestPassword = 80

// passwordOf is the password that is kept at some place, which ends with its line if it is a text.
func passwordOf(place string, kept []byte) (string, error) {
	switch password := strings.TrimRight(string(kept), "\r\n"); {
	case password == "":
		return "", fmt.Errorf("%s is empty", place)
	case len(password) > longestPassword:
		return "", fmt.Errorf("%s has %d bytes: TCP takes %d at most", place, len(password), longestPassword)
	default:
		return password, nil
	}
}
