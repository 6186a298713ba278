package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/bgp/birdctl"
	"github.com/twillnet/twill/internal/bgp/confd"
	"github.com/twillnet/twill/internal/bgp/plan"
)

// meshKey and meshPassword are of Calico's keys.
const (
	meshKey      = "/calico/bgp/v1/global/node_mesh"
	meshPassword = "/calico/bgp/v1/global/node_mesh_password"
)

// templateKeys are the keys of a plan with the blocks of the node and with passwords. A peer whose password has never been read has no key,
// and without that of the mesh there is no mesh: a template would open such sessions without a password. Missing says which.
func templateKeys(p plan.Plan, blocks []netip.Prefix, secret func(plan.Secret) (string, error)) (keys confd.Keys, missing []string) {
	keys = confd.Keys{}
	for _, b := range blocks {
		key, value := plan.BlockKey(p.Node, b)
		keys[key] = confd.Value{Text: value}
	}
	closed := false
	for _, name := range slices.Sorted(maps.Keys(p.Keys)) {
		k := p.Keys[name]
		if k.Secret == nil {
			keys[name] = confd.Value{Text: k.Value}
			continue
		}
		password, err := secret(*k.Secret)
		if password == "" {
			missing = append(missing, fmt.Sprintf("%s is left out: password: %v", name, err))
			closed = closed || name == meshPassword
			continue
		}
		keys[name] = confd.Value{Text: withPassword(k.Value, password), Secret: true}
	}
	if closed {
		keys[meshKey] = confd.Value{Text: `{"enabled":false}`}
	}
	return keys, missing
}

// withPassword puts a password into an object; there is none where the password is the whole value.
func withPassword(object, password string) string {
	fields := map[string]any{}
	if json.Unmarshal([]byte(object), &fields) != nil {
		return password
	}
	fields["password"] = password
	text, err := json.Marshal(fields)
	if err != nil {
		return password // it was read from JSON
	}
	return string(text)
}

// templates renders those of users. The goroutine of run owns it, so that a slow command holds nothing else up.
type templates struct {
	cfg      Confd
	renderer *confd.Renderer
	in       chan templateInput      // the latest alone
	report   func(problems []string) // called when what is wrong changes
	last     templateInput           // what was rendered last
	problems []string                // as reported last
	missing  []string                // as logged last
	reload   bool                    // BIRD has not read what was rendered
	wait     time.Duration           // from a failure to the next attempt; 0: nothing failed
}

// templateInput is what templates are rendered from.
type templateInput struct {
	keys    confd.Keys
	missing []string
}

func (in templateInput) equal(other templateInput) bool {
	return maps.Equal(in.keys, other.keys) && slices.Equal(in.missing, other.missing)
}

func newTemplates(cfg Confd) *templates {
	return &templates{cfg: cfg, in: make(chan templateInput, 1), report: func([]string) {}, renderer: confd.New(confd.Config{
		Dir: cfg.Templates, Node: cfg.Node, KeepStage: cfg.KeepStage, Run: cfg.Run, Log: cfg.Log.With("part", "templates"),
	})}
}

// offer hands over what is to be rendered next. One goroutine may call it.
func (t *templates) offer(in templateInput) {
	select {
	case <-t.in: // it was not looked at yet
	default:
	}
	t.in <- in
}

const (
	templatePoll = time.Second // at the directory
	longestWait  = time.Minute // from a failure to the next attempt
)

// run renders what is offered, and again when the directory changes, and what failed after a while that doubles.
func (t *templates) run(ctx context.Context) error {
	look := time.NewTicker(templatePoll)
	defer look.Stop()
	var due time.Time
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case in := <-t.in:
			if t.last.keys != nil && in.equal(t.last) {
				continue
			}
			t.last = in
		case now := <-look.C:
			failed := t.wait > 0 && now.After(due)
			if t.last.keys == nil || !failed && !t.renderer.Changed() {
				continue
			}
		}
		if problems := t.render(ctx); ctx.Err() == nil {
			t.say(problems)
		}
		due = time.Now().Add(t.wait)
	}
}

// render renders what is not as it should be, and has BIRD read it. It returns what is wrong.
func (t *templates) render(ctx context.Context) (problems []string) {
	replaced, errs := t.renderer.Render(ctx, t.last.keys)
	for _, key := range t.last.missing {
		if !slices.Contains(t.missing, key) {
			t.cfg.Log.Warn("templates do not have a peer", "err", key)
		}
	}
	t.missing = t.last.missing
	for _, file := range slices.Sorted(maps.Keys(errs)) {
		problems = append(problems, fmt.Sprintf("%s: %v", filepath.Join(t.cfg.Templates, "conf.d", file), errs[file]))
	}
	if t.reload = t.reload || len(replaced) > 0; t.reload && t.cfg.Bird != "" {
		if err := birdctl.Configure(t.cfg.Bird); err != nil && !doesNotRun(err) { // BIRD reads it when it starts
			problems = append(problems, fmt.Sprintf("BIRD does not take what is rendered: %v", err))
		} else {
			t.reload = false
		}
	}
	t.wait = min(max(2*t.wait, templatePoll), longestWait)
	if len(problems) == 0 {
		t.wait = 0
	}
	return problems
}

// say logs problems that are new, and reports them if they are others than before.
func (t *templates) say(problems []string) {
	if slices.Equal(problems, t.problems) {
		return
	}
	for _, p := range problems {
		if !slices.Contains(t.problems, p) {
			t.cfg.Log.Error("a template is not in effect", "err", p, "retry_in", t.wait)
		}
	}
	t.problems = problems
	t.report(problems)
}

// templatesChanged reports whether the directory is other than when this was asked last: a template may take the built-in configuration's
// place now, or no longer.
func (w *confWriter) templatesChanged() bool {
	if w.cfg.Templates == "" {
		return false
	}
	last := w.stamp
	w.stamp = confd.Stamp(w.cfg.Templates)
	return w.stamp != last
}

// builtIn reports whether the built-in configuration is to be written: unless there is none, or a template takes its place. While
// a resource cannot be read it may be that one, so nothing is replaced that is not ours.
func (w *confWriter) builtIn() (bool, error) {
	if w.cfg.Output == "" {
		return false, nil
	}
	if w.cfg.Templates == "" {
		return true, nil
	}
	output, err := filepath.Abs(w.cfg.Output)
	if err != nil {
		return false, err
	}
	all, errs := confd.Load(w.cfg.Templates, w.cfg.Node)
	if slices.ContainsFunc(all, func(r *confd.Resource) bool { return r.Dest == output }) {
		return false, nil
	}
	if len(errs) > 0 && !HasConfiguration(output) {
		return false, fmt.Errorf("%s is not ours, and a template resource that cannot be read (%s) may be in its place", output, strings.Join(slices.Sorted(maps.Keys(errs)), ", "))
	}
	return true, nil
}
