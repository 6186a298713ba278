package lab

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/kernel/netns"
	"github.com/twillnet/twill/internal/lab/script"
)

// workload makes a workload, and its endpoint unless it is bare.
func (c *scenario) workload(ctx context.Context, a script.Workload) error {
	h, _ := c.Spec.host(a.Host)
	w := Workload{
		Namespace: a.Namespace, Name: a.Name, Host: a.Host, V4: a.V4, V6: a.V6, Labels: a.Labels,
		Profiles: append([]string{}, a.Profiles...), Port: a.Port, PortName: a.PortName,
	}
	if !w.V6.IsValid() { // the same last number, read as hexadecimal, in the host's net
		w.V6 = netip.MustParseAddr(fmt.Sprintf("%s%d", strings.TrimSuffix(h.Nets[1].String(), "/64"), w.V4.As4()[3]))
	}
	for i, addr := range []netip.Addr{w.V4, w.V6} {
		if !a.Bare && !h.Nets[i].Contains(addr) {
			return fmt.Errorf("%s is not in %s, to which the other hosts have a route for the workloads of %s", addr, h.Nets[i], h.Name)
		}
	}
	c.Spec.Workloads = append(c.Spec.Workloads, w)
	if err := c.makeWorkload(w); err != nil || a.Bare {
		return err
	}
	return c.kept.endpoint(ctx, w)
}

func (c *scenario) endpoint(ctx context.Context, a script.Endpoint) error {
	return c.kept.endpoint(ctx, c.named(a.Workload))
}

// named is a workload that the parser has seen.
func (c *scenario) named(name string) Workload {
	for _, w := range c.Spec.Workloads {
		if w.Name == name {
			return w
		}
	}
	return Workload{}
}

// run runs a program to its end, and keeps what it wrote.
func (c *scenario) run(ns string, cmd *exec.Cmd) error {
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	cmd.Env = slices.Concat(os.Environ(), c.kept.env(), []string{"PATH=" + filepath.Dir(c.Exe) + ":" + os.Getenv("PATH")}, cmd.Env)
	start := cmd.Start
	if ns != "" {
		h, err := netns.Open(ns)
		if err != nil {
			return err
		}
		defer h.Close()
		start = func() error { return h.Start(cmd) }
	}
	err := start()
	if err == nil {
		err = cmd.Wait()
	}
	c.stdout, c.stderr = out.String(), errOut.String()
	for _, text := range []string{c.stdout, c.stderr} {
		for line := range strings.Lines(text) {
			fmt.Fprintf(c.verbose, "        %s\n", strings.TrimRight(line, "\n"))
		}
	}
	return err
}

// judge turns the end of a program into that of a step.
func (c *scenario) judge(err error, not bool) error {
	var exited *exec.ExitError
	switch {
	case not && err == nil:
		return fmt.Errorf("it succeeded, and should not\n%s", c.wrote())
	case not && errors.As(err, &exited) && exited.Exited(): // not killed by a signal
		return nil
	case err != nil:
		return fmt.Errorf("%w\n%s", err, c.wrote())
	}
	return nil
}

func (c *scenario) wrote() string { return strings.TrimSpace(c.stdout + c.stderr) }

// twill runs the command line on the store.
func (c *scenario) twill(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, c.Exe, append([]string{"--timeout", scenarioPatience.String()}, args...)...)
	cmd.Stdin = strings.NewReader(stdin)
	return c.run("", cmd)
}

func (c *scenario) applyText(ctx context.Context, text string) error {
	return c.judge(c.twill(ctx, text, "apply", "-f", "-"), false)
}

func (c *scenario) applyFiles(ctx context.Context, a script.Apply) error {
	args := []string{"apply"}
	for _, f := range a.Files {
		path, err := c.file(f)
		if err != nil {
			return err
		}
		args = append(args, "-f", path)
	}
	return c.judge(c.twill(ctx, "", args...), a.Not)
}

func (c *scenario) deleteSome(ctx context.Context, a script.Delete) error {
	args := []string{"delete"}
	for i, w := range a.Args {
		w, err := c.expand(w)
		if err == nil && i > 0 && a.Args[i-1] == "-f" {
			w, err = c.file(w)
		}
		if err != nil {
			return err
		}
		args = append(args, w)
	}
	return c.judge(c.twill(ctx, "", args...), a.Not)
}

// document returns an embedded document, or a file of the scenario's directory, with its names expanded.
func (c *scenario) document(name string) (string, error) {
	b, ok := c.script.Files[name]
	if !ok {
		var err error
		if b, err = os.ReadFile(filepath.Join(filepath.Dir(c.script.File), name)); err != nil {
			return "", fmt.Errorf("no document -- %s -- in this scenario, and %w", name, err)
		}
	}
	return c.expand(string(b))
}

// file puts a document where a program can read it.
func (c *scenario) file(name string) (path string, err error) {
	text, err := c.document(name)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(c.Dir, "files")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	path = filepath.Join(dir, filepath.Base(name))
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// variable is ${NAME.PART}; what has no dot is left to shells.
var variable = regexp.MustCompile(`\$\{([^}.\s]+)\.([a-z0-9]+)\}`)

// expand puts in what the scenario knows of hosts and workloads.
func (c *scenario) expand(text string) (string, error) {
	var err error
	out := variable.ReplaceAllStringFunc(text, func(v string) string {
		m := variable.FindStringSubmatch(v)
		e, findErr := c.Spec.find(m[1])
		w := c.named(m[1])
		switch {
		case findErr != nil:
			err = errors.Join(err, fmt.Errorf("%s: %w", v, findErr))
		case m[2] == "v4":
			return e.v4.String()
		case m[2] == "v6":
			return e.v6.String()
		case m[2] == "netns":
			return e.ns
		case m[2] == "link" && w.Name != "":
			return w.link()
		case m[2] == "endpoint" && w.Name != "":
			return w.endpointName()
		default:
			err = errors.Join(err, fmt.Errorf("%s: want v4, v6 or netns, or of a workload link or endpoint", v))
		}
		return v
	})
	return out, err
}

// put writes or deletes a value past the command line, which would refuse what is wrong in it.
func (c *scenario) put(ctx context.Context, a script.Put) error {
	k, err := c.expand(a.Key)
	if err != nil {
		return err
	}
	store, err := c.store(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	if a.File == "" {
		return store.Delete(ctx, k, api.Revision{})
	}
	text, err := c.document(a.File)
	if err != nil {
		return err
	}
	u := api.Update{Key: k, Value: []byte(strings.TrimSuffix(text, "\n"))}
	if _, err = store.Update(ctx, u); errors.Is(err, datastore.ErrNotFound) {
		_, err = store.Create(ctx, u)
	}
	return err
}

// compact removes the store's history, so that a watch that was cut off must list again.
func (c *scenario) compact(ctx context.Context) error {
	store, err := c.store(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	s, ok := store.(datastore.Compacter)
	if !ok {
		return errors.New("this datastore cannot be made to forget")
	}
	return s.Compact(ctx, datastore.Position{})
}

// empty deletes all that the store holds, in one transaction unless it is too large for that.
func (c *scenario) empty(ctx context.Context) error {
	store, err := c.store(ctx)
	if err != nil {
		return err
	}
	defer store.Close()
	s, ok := store.(datastore.Transactional)
	if !ok {
		return errors.New("this datastore cannot be emptied")
	}
	all, err := store.List(ctx, api.Root)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(all.Sorted(), datastore.MostChanges) {
		var t datastore.Txn
		for _, u := range some {
			t.Delete = append(t.Delete, u.Key)
		}
		if _, err := s.Transact(ctx, t); err != nil {
			return err
		}
	}
	return nil
}

func (c *scenario) exec(ctx context.Context, a script.Exec) error {
	where, err := c.Spec.find(a.Where)
	if err != nil {
		return err
	}
	argv := make([]string, len(a.Argv))
	for i := range argv {
		if _, ok := c.script.Files[a.Argv[i]]; ok {
			argv[i], err = c.file(a.Argv[i])
		} else {
			argv[i], err = c.expand(a.Argv[i])
		}
		if err != nil {
			return err
		}
	}
	if argv[0] == "twill" {
		argv[0] = c.Exe // that of the hosts, which need not be in PATH
	}
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	if _, ok := c.Spec.host(a.Where); ok {
		cmd.Env = c.hostEnv(a.Where)
	}
	return c.judge(c.run(where.ns, cmd), a.Not)
}

func (c *scenario) match(a script.Match) error {
	text := c.stdout
	if a.Stream == "stderr" {
		text = c.stderr
	}
	if a.Pattern.MatchString(text) == a.Not {
		return fmt.Errorf("the last program wrote there\n%s", strings.TrimSpace(text))
	}
	return nil
}
