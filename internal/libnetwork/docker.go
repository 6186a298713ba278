package libnetwork

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// docker is Docker's API, of which this plugin reads what dockerd's calls do not say.
type docker struct {
	socket string
	client *http.Client
}

func newDocker(socket string) *docker {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	return &docker{socket: socket, client: &http.Client{Transport: &http.Transport{DialContext: dial}}}
}

// get reads an object.
func (d *docker) get(ctx context.Context, path string, out any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, http.NoBody)
	if err != nil {
		return err
	}
	answer, err := d.client.Do(r)
	if err != nil {
		return fmt.Errorf("Docker's API at %s: %w", d.socket, err)
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("Docker's API at %s answers %s to %s", d.socket, answer.Status, path)
	}
	return json.NewDecoder(answer.Body).Decode(out)
}

// networks knows the names of networks, which dockerd's calls do not say. They are kept on disk: when dockerd starts, it starts containers
// before its API answers.
type networks struct {
	dir    string
	docker *docker
}

// apiTimeout bounds a question in the midst of one of dockerd's calls.
const apiTimeout = 10 * time.Second

// validID holds what becomes a name of a file and of links to what dockerd calls an ID.
var validID = regexp.MustCompile(`^[0-9a-f]{12,64}$`)

// name returns the name of a network.
func (n networks) name(ctx context.Context, id string) (string, error) {
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

func (n networks) keep(id, name string) error {
	file := filepath.Join(n.dir, id)
	if err := os.WriteFile(file+".new", []byte(name), 0o600); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

func (n networks) forget(id string) error {
	err := os.Remove(filepath.Join(n.dir, id))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
