package libnetwork

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"time"
)

// networks knows the names of networks, which dockerd's calls do not say. They are kept on disk: when dockerd starts, it starts containers
// before its API answers.
type networks struct {
	dir    string
	docker *docker
	mu     sync.Mutex // held while a file is written
}

// apiTimeout bounds a question in the midst of one of dockerd's calls.
const apiTimeout = 10 * time.Second

// fullID is how long Docker's IDs are.
const fullID = 64

// validID holds what becomes a name of a file and of links to what dockerd calls an ID.
var validID = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// name returns the name of a network.
func (n *networks) name(ctx context.Context, id string) (string, error) {
	text, err := os.ReadFile(filepath.Join(n.dir, id))
	if !errors.Is(err, fs.ErrNotExist) {
		return string(text), err
	}
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	var is struct{ Name string }
	if err := n.docker.get(ctx, "/networks/"+id, &is); err != nil {
		return "", fmt.Errorf("the name of the network is not known: %w", err)
	}
	return is.Name, n.keep(id, is.Name)
}

func (n *networks) keep(id, name string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	file := filepath.Join(n.dir, id)
	if has, err := os.ReadFile(file); err == nil && string(has) == name {
		return nil
	}
	if err := os.WriteFile(file+".new", []byte(name), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (n *networks) forget(id string) error {
	err := os.Remove(filepath.Join(n.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
