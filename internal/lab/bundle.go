package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/nftables"
)

// bundle writes all that a failed scenario knows, and returns the directory.
// What could not be had is said in the file that should hold it.
func (c *scenario) bundle(parent string, why error) string {
	if parent != "" {
		if err := os.MkdirAll(parent, 0o755); err != nil {
			return err.Error()
		}
	}
	dir, err := os.MkdirTemp(parent, "twill-"+scenarioName(c.script)+"-")
	if err != nil {
		return err.Error()
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute) // also after an interrupt
	defer cancel()
	b := bundle{dir: dir}
	b.write("scenario.txt", c.script.Text)
	b.write("failure.txt", why.Error()+"\n")
	b.write("steps.txt", c.log.String())
	for _, h := range c.Spec.Hosts {
		b.host(ctx, h.Name, c.Spec.hostNS(h))
		b.copy(h.Name+"/node.log", c.logFile(h.Name))
		if c.keepsBIRD(h.Name) {
			b.copy(h.Name+"/bird.conf", filepath.Join(c.Dir, h.Name, "bird.conf"))
			b.program(ctx, h.Name+"/bird.txt", c.Spec.hostNS(h), "sh", "-c", "for w in 'status' 'protocols all' 'route all'; do birdc -s "+filepath.Join(c.Dir, h.Name, "bird.ctl")+" show $w; done")
		}
		b.asked(h.Name+"/table.txt", func() (string, error) { return table(c.Spec.hostNS(h)) })
		b.asked(h.Name+"/verify.txt", func() (string, error) { return c.verify(ctx, c.Spec.hostNS(h), h.Name) })
		b.asked(h.Name+"/metrics.txt", func() (string, error) { return scrape(ctx, c.agentSocket(h.Name)) })
	}
	for _, w := range c.Spec.Workloads {
		b.end(ctx, w.Name, c.Spec.workloadNS(w))
	}
	b.copy("store/node.log", c.logFile(storeName))
	b.write("store/calico.json", c.dump(ctx))
	for name, r := range c.captures {
		r.mu.Lock()
		b.write("captures/"+name+".txt", strings.Join(r.lines, "\n")+"\n")
		r.mu.Unlock()
	}
	return dir
}

// bundle is the directory with the files about a failed scenario.
type bundle struct{ dir string }

func (b bundle) write(name, text string) {
	path := filepath.Join(b.dir, name)
	_ = os.MkdirAll(filepath.Dir(path), 0o755)
	_ = os.WriteFile(path, []byte(text), 0o644) // best effort: the failure itself is reported elsewhere
}

func (b bundle) copy(name, from string) {
	text, err := os.ReadFile(from)
	if err != nil {
		text = []byte(err.Error())
	}
	b.write(name, string(text))
}

// asked keeps an answer, and why there is none or only a part of one.
func (b bundle) asked(name string, ask func() (string, error)) {
	text, err := ask()
	if err != nil {
		text += "\n" + err.Error()
	}
	b.write(name, text+"\n")
}

// table is our nftables table in the canonical form in which rulesets are compared; it needs no nft.
func table(ns string) (text string, err error) {
	err = inside(ns, func() error {
		conn, err := nftables.Open()
		if err != nil {
			return err
		}
		defer conn.Close()
		rs, err := conn.List(kernel.TableName)
		if err == nil {
			text = rs.Canonical()
		}
		return err
	})
	return text, err
}

// program keeps what a program in a namespace writes.
func (b bundle) program(ctx context.Context, name, ns string, argv ...string) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	err := inside(ns, cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		fmt.Fprintf(&out, "%s: %v\n", strings.Join(argv, " "), err)
	}
	b.write(name, out.String())
}

// end keeps the addresses, routes and neighbours of a namespace.
func (b bundle) end(ctx context.Context, name, ns string) {
	b.program(ctx, name+"/addresses.txt", ns, "ip", "-details", "address")
	b.program(ctx, name+"/neighbours.txt", ns, "sh", "-c", "ip neighbour; ip neighbour show proxy; ip -6 neighbour show proxy")
	b.program(ctx, name+"/routes.txt", ns, "sh", "-c", "ip -details route show table all; ip -6 -details route show table all; ip rule")
}

func (b bundle) host(ctx context.Context, name, ns string) {
	b.end(ctx, name, ns)
	b.program(ctx, name+"/nft.txt", ns, "nft", "list", "ruleset")
	b.program(ctx, name+"/conntrack.txt", ns, "sh", "-c", "conntrack -L 2>/dev/null || cat /proc/net/nf_conntrack")
	var settings strings.Builder
	err := inside(ns, func() error {
		var files []string
		for _, pattern := range []string{"ipv4/ip_forward", "ipv4/conf/*/*", "ipv6/conf/*/*", "ipv4/neigh/*/proxy_delay", "ipv6/neigh/*/proxy_delay"} {
			found, err := filepath.Glob("/proc/sys/net/" + pattern)
			if err != nil {
				return err
			}
			files = append(files, found...)
		}
		for _, f := range files {
			if v, err := os.ReadFile(f); err == nil { // some are for writing alone
				fmt.Fprintf(&settings, "%s = %s\n", strings.TrimPrefix(f, "/proc/sys/"), strings.TrimSpace(string(v)))
			}
		}
		return nil
	})
	if err != nil {
		settings.WriteString(err.Error())
	}
	b.write(name+"/sysctl.txt", settings.String())
}

// dump is the store's content, as JSON by key.
func (c *scenario) dump(ctx context.Context) string {
	if !c.runs {
		return "the store is stopped\n"
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	store, err := c.store(ctx)
	if err != nil {
		return err.Error()
	}
	defer store.Close()
	snap, err := store.List(ctx, "/calico/")
	all := map[string]any{}
	for _, u := range snap.Items {
		all[u.Key] = string(u.Value)
		if json.Valid(u.Value) {
			all[u.Key] = json.RawMessage(u.Value)
		}
	}
	text, jsonErr := json.MarshalIndent(all, "", "  ")
	if err = errors.Join(err, jsonErr); err != nil {
		return err.Error()
	}
	return string(text) + "\n"
}
