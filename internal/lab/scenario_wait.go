package lab

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/lab/script"
	"github.com/twillnet/twill/internal/status"
)

// knows reports whether a host can know what the store asks for: its agent is to run, and the store answers it.
func (c *scenario) knows(host string) bool {
	h, _ := c.Spec.host(host)
	return !h.Reflector && c.nodes[host] != nil && c.runs && !c.cut[host]
}

// settle awaits that all that was written is in force: the kernel of each host
// that can know is what a fresh agent would make of the store. It costs nothing
// when nothing was changed since.
func (c *scenario) settle(ctx context.Context) error {
	if c.settled {
		return nil
	}
	if frozen, err := c.frozen(ctx); frozen || err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, h := range c.Spec.Hosts {
		if c.knows(h.Name) {
			group.Go(func() error { return c.waitAgent(groupCtx, h.Name) })
		}
	}
	err := group.Wait()
	if err == nil {
		err = c.awaitRoutes(ctx, slices.DeleteFunc(slices.Clone(c.Spec.Hosts), func(h Host) bool { return c.nodes[h.Name] == nil || c.speaks(h.Name) == "off" }))
	}
	c.settled = err == nil
	return err
}

// frozen reports whether the store says that it is not ready, or nothing any more: then no host acts on what it has.
func (c *scenario) frozen(ctx context.Context) (bool, error) {
	if !c.runs {
		return false, nil
	}
	store, err := c.store(ctx)
	if err != nil {
		return false, err
	}
	defer store.Close()
	kv, err := store.Get(ctx, api.ResourcesPrefix+"clusterinformations/default")
	if errors.Is(err, datastore.ErrNotFound) {
		return c.ready, nil
	}
	c.ready = true
	var info struct {
		Spec struct{ DatastoreReady *bool }
	}
	if err == nil {
		err = json.Unmarshal(kv.Value, &info)
	}
	ready := info.Spec.DatastoreReady
	return ready != nil && !*ready, err
}

// waitAgent awaits that an agent runs on a host, and that the kernel is what the store asks for.
func (c *scenario) waitAgent(ctx context.Context, host string) error {
	if !c.knows(host) {
		return fmt.Errorf("%s is stopped, or has no store: it cannot become right", host)
	}
	h, _ := c.Spec.host(host)
	return until(ctx, func(ctx context.Context) error {
		if c.agent(host) == 0 {
			return fmt.Errorf("no agent runs on %s", host)
		}
		out, err := c.verify(ctx, c.Spec.hostNS(*h), host)
		if err != nil {
			return fmt.Errorf("the kernel of %s is not what the store asks for: %w\n%s", host, err, out)
		}
		return nil
	})
}

func (c *scenario) verify(ctx context.Context, ns, host string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Exe, "verify", "--node", host)
	cmd.Env = slices.Concat(os.Environ(), c.kept.env(), c.hostEnv(host))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := inside(ns, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	return strings.TrimSpace(out.String()), err
}

// waitStatus reads what the agent writes for orchestrators (docs/design/datamodel.md#status).
func (c *scenario) waitStatus(ctx context.Context, a script.WaitStatus) error {
	w := c.named(a.Workload)
	return until(ctx, func(ctx context.Context) error {
		store, err := c.store(ctx)
		if err != nil {
			return err
		}
		defer store.Close()
		snap, err := store.List(ctx, "/calico/felix/v2/")
		if err != nil {
			return err
		}
		for _, u := range snap.Items {
			id := "/workload/" + status.Part(w.Namespace+"/"+w.Name) + "/endpoint/"
			orchestrated := strings.Replace(u.Key, "/workload/k8s/", "/workload/", 1)
			if !strings.Contains(u.Key, "/host/"+a.Host+"/") || !strings.Contains(orchestrated, id) {
				continue
			}
			var v struct{ Status string }
			if err := json.Unmarshal(u.Value, &v); err != nil || v.Status != a.Want {
				return fmt.Errorf("%s says %s", u.Key, u.Value)
			}
			return nil
		}
		return fmt.Errorf("no status of %s on %s in the store", w, a.Host)
	})
}

func (c *scenario) waitLog(ctx context.Context, a script.WaitLog) error {
	return until(ctx, func(context.Context) error {
		log, err := os.ReadFile(c.logFile(a.Who))
		if err == nil && !a.Pattern.Match(log) {
			err = fmt.Errorf("nothing in the log of %s matches", a.Who)
		}
		return err
	})
}

func (c *scenario) waitExec(ctx context.Context, a script.WaitExec) error {
	return until(ctx, func(ctx context.Context) error {
		if err := c.exec(ctx, a.Exec); err != nil {
			return err
		}
		for _, m := range a.Writes {
			if err := c.match(m); err != nil {
				return fmt.Errorf("%s: %w", m, err)
			}
		}
		return nil
	})
}

// statusCommands are what a host is asked for its status, one after the other.
var statusCommands = [][]string{{"verify", "--patience", "0s"}, {"status"}}

// status awaits what a host says of itself; without a pattern, that nothing is wrong.
func (c *scenario) status(ctx context.Context, a script.Status) error {
	h, _ := c.Spec.host(a.Host)
	return until(ctx, func(ctx context.Context) error {
		var output string
		var wrong error
		for _, args := range statusCommands {
			cmd := exec.CommandContext(ctx, c.Exe, args...)
			cmd.Env = c.hostEnv(a.Host)
			wrong = errors.Join(wrong, c.judge(c.run(c.Spec.hostNS(*h), cmd), false))
			output += c.stdout + c.stderr
		}
		if c.stdout = output; a.Pattern == nil {
			return wrong
		}
		if !a.Pattern.MatchString(output) {
			return fmt.Errorf("it says\n%s", strings.TrimSpace(output))
		}
		return nil
	})
}

func (c *scenario) waitMetric(ctx context.Context, a script.WaitMetric) error {
	return until(ctx, func(ctx context.Context) error {
		text, err := scrape(ctx, c.agentSocket(a.Host))
		if err != nil {
			return err
		}
		v, n := sumMetric(text, a.Name, a.Labels)
		if !a.Holds(v) {
			return fmt.Errorf("it is %v, the sum of %d series", v, n)
		}
		return nil
	})
}

// scrape reads all metrics of the agent that answers at a socket.
func scrape(ctx context.Context, socket string) (string, error) {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://agent/metrics", nil)
	if err != nil {
		return "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(b), err
}

// sumMetric adds up the series of a metric that have these labels, in the text form of Prometheus. None is 0.
func sumMetric(text, name string, labels map[string]string) (sum float64, series int) {
	for sc := bufio.NewScanner(strings.NewReader(text)); sc.Scan(); {
		rest, ok := strings.CutPrefix(sc.Text(), name)
		if !ok || rest == "" || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		value := rest
		has := true
		if rest[0] == '{' {
			end := strings.LastIndex(rest, "}")
			for k, v := range labels {
				pair := k + "=" + strconv.Quote(v)
				has = has && (strings.Contains(rest[:end+1], "{"+pair) || strings.Contains(rest[:end+1], ","+pair))
			}
			value = rest[end+1:]
		} else {
			has = len(labels) == 0
		}
		f := strings.Fields(value)
		if !has || len(f) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(f[0], 64); err == nil {
			sum, series = sum+v, series+1
		}
	}
	return sum, series
}
