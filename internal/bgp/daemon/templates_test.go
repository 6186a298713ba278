package daemon

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twillnet/twill/internal/bgp/confd"
	"github.com/twillnet/twill/internal/bgp/plan"
	"github.com/twillnet/twill/internal/kernel"
	"github.com/twillnet/twill/internal/kernel/netnstest"
	"github.com/twillnet/twill/internal/kernel/rtnl"
)

// templateDir is a directory of templates, of which one, NAME, is written to dest.
func templateDir(t *testing.T, name, dest, fields, template string) string {
	t.Helper()
	dir := t.TempDir()
	putFile(t, filepath.Join(dir, "conf.d", name+".toml"), fmt.Sprintf("[template]\nsrc = %q\ndest = %q\nkeys = [\"/calico\"]\n%s\n", name+".tmpl", dest, fields))
	putFile(t, filepath.Join(dir, "templates", name+".tmpl"), template)
	return dir
}

func putFile(t *testing.T, file, text string) {
	t.Helper()
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, []byte(text), 0o600)); err != nil {
		t.Fatal(err)
	}
}

func textOf(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// newWriter is a writer whose built-in configuration is DIR/bird.conf, and whose commands succeed.
func newWriter(t *testing.T, ns *netnstest.NS, dir, templates, bird string) *confWriter {
	w := &confWriter{rtnl: ns.Rtnl(), secrets: newSecretDir(dir), requests: make(chan func()), cfg: Confd{
		Config: Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, Output: filepath.Join(dir, "bird.conf"), Bird: bird, Templates: templates,
		Check: func(string) error { return nil }, Run: func(context.Context, string) error { return nil },
	}}
	w.templates = newTemplates(w.cfg)
	return w
}

// TestATemplateTakesTheBuiltInConfigurationsPlace: one that has its file, whether it can be rendered or not.
func TestATemplateTakesTheBuiltInConfigurationsPlace(t *testing.T) {
	ns := netnstest.New(t)
	block := rtnl.Route{Dst: netip.MustParsePrefix("10.65.1.0/26"), Kind: rtnl.Blackhole, Protocol: kernel.RouteProtocolAgent}
	if err := ns.Rtnl().AddRoute(block); err != nil {
		t.Fatal(err)
	}
	p := plan.Plan{Node: "h1", AS: 64512, RouterID: netip.MustParseAddr("192.0.2.1"), Keys: map[string]plan.Key{"/calico/k": {Value: "v"}}}
	for _, tt := range []struct{ name, file, old, resource, template, want, err string }{
		{"one for another file: both are written", "other", "", "", "{{getv \"/calico/k\"}}", "# Written by twill", ""},
		{"one for its file", "bird.conf", "", "", "{{getv \"/calico/k\"}}{{ls \"/calico/ipam/v2/host/h1/ipv4/block\"}}", "v[10.65.1.0-26]", ""},
		{"one for its file that fails", "bird.conf", "old", "", "{{getv \"/none\"}}", "old", "key /none does not exist"},
		{"one that cannot be read: it may have been for this file", "bird.conf", "users", "x", "v", "users", "is not ours, and a template resource that cannot be read"},
		{"which it was not, if the file is ours", "bird.conf", "# Written by twill before", "x", "v", "# Written by twill;", "line"},
		{"and where there is no file", "bird.conf", "", "x", "v", "no such file", "is not ours"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.old != "" {
				putFile(t, filepath.Join(dir, "bird.conf"), tt.old)
			}
			templates := templateDir(t, "u", filepath.Join(dir, tt.file), tt.resource, tt.template)
			w := newWriter(t, ns, dir, templates, "")
			err := w.write(p)
			w.templates.last = <-w.templates.in
			for _, problem := range w.templates.render(t.Context()) {
				err = errors.Join(err, errors.New(problem))
			}
			if got := textOf(filepath.Join(dir, "bird.conf")); !strings.Contains(got, tt.want) {
				t.Errorf("the file is %q, want %q", got, tt.want)
			}
			if (err == nil) != (tt.err == "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("%v, want %q", err, tt.err)
			}
		})
	}
}

// TestBIRDReadsWhatTemplatesWrite, and what it refuses is said until it takes it.
func TestBIRDReadsWhatTemplatesWrite(t *testing.T) {
	answer := "0002-Reading configuration\n8002 /etc/bird/bird.conf:1:1 syntax error\n"
	socket, commands := fakeBIRD(t, answer)
	dir := t.TempDir()
	tm := newTemplates(Confd{
		Config: Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, Bird: socket, Run: func(context.Context, string) error { return nil },
		Templates: templateDir(t, "u", filepath.Join(dir, "u"), "", "x"),
	})
	tm.last.keys = confd.Keys{}
	var reported [][]string
	tm.report = func(problems []string) { reported = append(reported, problems) }
	tm.say(tm.render(t.Context()))
	tm.say(tm.render(t.Context()))
	if len(commands) != 2 || len(reported) != 1 || len(reported[0]) != 1 || !strings.Contains(reported[0][0], "syntax error") {
		t.Errorf("%d commands, reported %q", len(commands), reported)
	}
	tm.cfg.Bird, commands = fakeBIRD(t, "0002-Reading configuration\n0003 Reconfigured\n")
	tm.say(tm.render(t.Context()))
	tm.say(tm.render(t.Context()))
	if len(commands) != 1 || len(reported) != 2 || len(reported[1]) != 0 {
		t.Errorf("%d commands, reported %q", len(commands), reported)
	}
}

// TestTemplatesFollowKeysAndTheirDirectory: in virtual time. What fails is tried again after a time that doubles.
func TestTemplatesFollowKeysAndTheirDirectory(t *testing.T) {
	dest := filepath.Join(t.TempDir(), "u")
	dir := templateDir(t, "u", dest, `reload_cmd = "reload"`, `{{getv "/calico/k"}}`)
	synctest.Test(t, func(t *testing.T) {
		var ran []time.Duration
		begin, fails := time.Now(), true
		tm := newTemplates(Confd{Config: Config{Node: "h1", Log: slog.New(slog.DiscardHandler)}, Templates: dir, Run: func(context.Context, string) error {
			if ran = append(ran, time.Since(begin)); fails {
				return errors.New("exit status 1")
			}
			return nil
		}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- tm.run(ctx) }()
		later := func(d time.Duration) {
			<-time.After(d) // virtual
			synctest.Wait()
		}
		offer := func(v string) { tm.offer(templateInput{keys: confd.Keys{"/calico/k": {Text: v}}}) }
		later(time.Minute)
		if got := textOf(dest); !strings.Contains(got, "no such file") {
			t.Errorf("before there are keys: %q", got)
		}
		offer("1")
		for range 20 { // who offers the same again and again does not hasten what failed
			later(500 * time.Millisecond)
			offer("1")
		}
		if got := textOf(dest); got != "1" || len(ran) != 4 {
			t.Errorf("in ten seconds: %q, the reload was tried at %v, want 4 times", got, ran)
		}
		fails = false
		offer("2")
		later(0)
		if got := textOf(dest); got != "2" || len(ran) != 5 {
			t.Errorf("after a change of keys: %q, tried at %v", got, ran)
		}
		later(time.Hour)
		if len(ran) != 5 {
			t.Errorf("what is done was done again: %v", ran)
		}
		putFile(t, filepath.Join(dir, "templates", "u.tmpl"), `now {{getv "/calico/k"}}`)
		later(2 * templatePoll)
		if got := textOf(dest); got != "now 2" {
			t.Errorf("after a change of the template: %q", got)
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

// TestPasswordsArePutIntoKeys, and what has one that is not known is not there.
func TestPasswordsArePutIntoKeys(t *testing.T) {
	p := plan.Plan{Node: "h1", Keys: map[string]plan.Key{
		meshKey: {Value: `{"enabled":true}`}, meshPassword: {Secret: &plan.Secret{Name: "mesh"}},
		"/calico/peer": {Value: `{"as_num":"4200000001","password":null}`, Secret: &plan.Secret{Name: "peer"}}, "/calico/open": {Value: `{"password":null}`},
	}}
	known := map[string]string{"mesh": "m", "peer": `"quoted`}
	secret := func(s plan.Secret) (string, error) {
		if known[s.Name] == "" {
			return "", errors.New("no such file")
		}
		return known[s.Name], nil
	}
	keys, missing := templateKeys(p, nil, secret)
	for name, want := range map[string]confd.Value{
		meshKey: {Text: `{"enabled":true}`}, meshPassword: {Text: "m", Secret: true}, "/calico/peer": {Text: `{"as_num":"4200000001","password":"\"quoted"}`, Secret: true}, "/calico/open": {Text: `{"password":null}`},
	} {
		if keys[name] != want {
			t.Errorf("%s is %+v, want %+v", name, keys[name], want)
		}
	}
	if len(keys) != 4 || len(missing) != 0 {
		t.Errorf("%d keys, missing %q", len(keys), missing)
	}
	clear(known)
	keys, missing = templateKeys(p, nil, secret)
	if len(keys) != 2 || keys[meshKey].Text != `{"enabled":false}` || len(missing) != 2 || !strings.Contains(strings.Join(missing, ""), "/calico/peer is left out: password: no such file") {
		t.Errorf("without passwords: %+v, missing %q", keys, missing)
	}
}
