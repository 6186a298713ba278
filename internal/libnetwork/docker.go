package libnetwork

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
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
	body, err := d.ask(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(out)
}

func (d *docker) ask(ctx context.Context, path string) (io.ReadCloser, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://docker"+path, http.NoBody)
	if err != nil {
		return nil, err
	}
	answer, err := d.client.Do(r)
	if err != nil {
		return nil, fmt.Errorf("Docker's API at %s: %w", d.socket, err)
	}
	if answer.StatusCode != http.StatusOK {
		answer.Body.Close()
		return nil, fmt.Errorf("Docker's API at %s answers %s to %s", d.socket, answer.Status, path)
	}
	return answer.Body, nil
}

// filters are a parameter of Docker's API: the values that a field may have.
func filters(of map[string][]string) string {
	text, err := json.Marshal(of)
	if err != nil {
		panic(err) // it is made of plain values
	}
	return "filters=" + url.QueryEscape(string(text))
}

// event is one of a network's.
type event struct {
	Action string // create, connect, destroy
	Actor  struct {
		ID         string // the network's
		Attributes struct {
			Name, Type, Container string
		}
	}
}

// events are those of networks, until the context ends or dockerd goes; then the channel is closed.
func (d *docker) events(ctx context.Context) (<-chan event, error) {
	body, err := d.ask(ctx, "/events?"+filters(map[string][]string{"type": {"network"}}))
	if err != nil {
		return nil, err
	}
	out := make(chan event)
	go func() {
		defer close(out)
		defer body.Close()
		for decoder := json.NewDecoder(body); ; {
			var e event
			if decoder.Decode(&e) != nil {
				return
			}
			select {
			case out <- e:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out, nil
}

// dockerNetwork is a network, as far as this plugin looks at it.
type dockerNetwork struct {
	ID, Name   string
	Containers map[string]struct{ EndpointID string } // by the container's ID; another text, where there is none
	IPAM       struct {
		Config []struct{ AuxiliaryAddresses map[string]string }
	}
}

// networks returns those of this driver.
func (d *docker) networks(ctx context.Context) ([]dockerNetwork, error) {
	var all []dockerNetwork
	if err := d.get(ctx, "/networks?"+filters(map[string][]string{"driver": {networkDriver}}), &all); err != nil {
		return nil, err
	}
	for i := range all { // the list has no containers
		if err := d.get(ctx, "/networks/"+all[i].ID, &all[i]); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// dockerContainer is a container, as far as this plugin looks at it.
type dockerContainer struct {
	Config          struct{ Labels map[string]string }
	NetworkSettings struct {
		Networks map[string]struct{ NetworkID, EndpointID string }
	}
}
