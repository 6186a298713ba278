// Package confd renders users' confd templates: template resources and templates as confd documents them, from keys as Calico's confd has them.
//
// In: a directory with conf.d/*.toml and templates, and [Keys]. Out: the files that the resources name, each replaced whole by a rename,
// once the resource's check command accepts the new one; then its reload command is run. What fails leaves its file as it was, is named, and
// stops no other.
package confd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"text/template"
)

// Config is what a Renderer needs.
type Config struct {
	Dir       string // with conf.d and templates
	Node      string // the node's name, for //NODENAME in keys and prefixes
	KeepStage bool   // leave a refused file next to its destination
	// Run runs a command by a shell. Its error has what the command printed.
	Run func(ctx context.Context, command string) error
	Log *slog.Logger
}

// Renderer renders a directory. Use New; one goroutine may use it.
type Renderer struct {
	cfg   Config
	done  map[string]*result // by the resource's file
	stamp string             // of the directory, when it was rendered last
}

// result is what became of a resource.
type result struct {
	stamp  string // of the directory
	keys   Keys
	reload bool // the reload command has not succeeded since the file was replaced
	err    error
}

// New returns a Renderer.
func New(cfg Config) *Renderer { return &Renderer{cfg: cfg, done: map[string]*result{}} }

// Changed reports whether the directory is not as it was rendered last.
func (r *Renderer) Changed() bool { return Stamp(r.cfg.Dir) != r.stamp }

// Render renders what is not yet as the directory and the keys want it. It returns the files that it replaced, and why others are not as
// they should be, by the name of the resource.
func (r *Renderer) Render(ctx context.Context, keys Keys) (replaced []string, problems map[string]error) {
	r.stamp = Stamp(r.cfg.Dir) // first: what changes meanwhile is rendered again
	all, problems := Load(r.cfg.Dir, r.cfg.Node)
	maps.DeleteFunc(r.done, func(file string, _ *result) bool {
		return !slices.ContainsFunc(all, func(s *Resource) bool { return s.file == file }) && problems[file] == nil
	})
	// A check may need what another resource writes: an included file. So those that fail are tried again after others were written.
	for left := all; len(left) > 0; {
		var failed []*Resource
		wrote := false
		for _, s := range left {
			changed, err := r.one(ctx, s, keys.of(s))
			if changed {
				replaced, wrote = append(replaced, s.Dest), true
			}
			if delete(problems, s.file); err != nil {
				problems[s.file] = err
			}
			if err != nil && !r.done[s.file].reload {
				failed = append(failed, s)
			}
		}
		if left = failed; !wrote {
			break
		}
	}
	return replaced, problems
}

// one renders one resource, unless that is done.
func (r *Renderer) one(ctx context.Context, s *Resource, keys Keys) (changed bool, err error) {
	last := r.done[s.file]
	if last != nil && last.err == nil && last.stamp == r.stamp && maps.Equal(last.keys, keys) {
		return false, nil
	}
	res := &result{stamp: r.stamp, keys: keys, reload: last != nil && last.reload}
	r.done[s.file] = res
	if changed, res.err = r.write(ctx, s, keys); res.err != nil {
		return false, res.err
	}
	if res.reload = res.reload || changed; res.reload && s.ReloadCmd != "" {
		if err := r.cfg.Run(ctx, s.ReloadCmd); err != nil {
			res.err = fmt.Errorf("%s is replaced, but reload_cmd failed: %w", s.Dest, err)
			return changed, res.err
		}
	}
	res.reload = false
	return changed, nil
}

// write replaces a resource's file, if it is not as it should be and the check accepts the new one.
func (r *Renderer) write(ctx context.Context, s *Resource, keys Keys) (changed bool, err error) {
	text, err := r.execute(s, keys)
	if err != nil {
		return false, err
	}
	old, err := statOf(s.Dest)
	if err != nil {
		return false, err
	}
	want := s.attributes(old, keys.secret())
	if old != nil && *old == want {
		if have, err := os.ReadFile(s.Dest); err == nil && bytes.Equal(have, text) {
			return false, nil
		}
	}
	stage, err := stageOf(s.Dest, text, want)
	if err != nil {
		return false, err
	}
	if err := r.checked(ctx, s, stage); err != nil {
		if !r.cfg.KeepStage {
			return false, errors.Join(err, os.Remove(stage))
		}
		return false, errors.Join(fmt.Errorf("%w; it is kept as %s.stage", err, s.Dest), os.Rename(stage, s.Dest+".stage"))
	}
	if err := os.Rename(stage, s.Dest); err != nil {
		return false, errors.Join(err, os.Remove(stage))
	}
	r.cfg.Log.Info("a template is rendered", "resource", s.file, "file", s.Dest)
	return true, nil
}

// execute returns the text that a template has.
func (r *Renderer) execute(s *Resource, keys Keys) ([]byte, error) {
	src := filepath.Join(r.cfg.Dir, "templates", s.Src)
	text, err := os.ReadFile(src)
	if err != nil {
		return nil, err
	}
	t, err := template.New(filepath.Base(src)).Funcs(functions(keys)).Parse(string(text))
	if err != nil {
		return nil, err
	}
	var out limited
	if err := t.Execute(&out, nil); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// largest is the size of the largest file that is rendered, in bytes.
const largest = 64 << 20

// limited is a buffer that does not take all memory.
type limited struct{ bytes.Buffer }

// Write is part of io.Writer.
func (l *limited) Write(p []byte) (int, error) {
	if l.Len()+len(p) > largest {
		return 0, fmt.Errorf("the text has more than %d bytes", largest)
	}
	return l.Buffer.Write(p)
}

// checked has the check command judge a file.
func (r *Renderer) checked(ctx context.Context, s *Resource, stage string) error {
	if s.CheckCmd == "" {
		return nil
	}
	t, err := template.New("check_cmd").Option("missingkey=error").Parse(s.CheckCmd)
	if err != nil {
		return err
	}
	var command bytes.Buffer
	if err := t.Execute(&command, map[string]string{"src": stage}); err != nil {
		return err
	}
	if err := r.cfg.Run(ctx, command.String()); err != nil {
		return fmt.Errorf("check_cmd refuses it: %w", err)
	}
	return nil
}

// attributes are a file's owner and mode.
type attributes struct {
	uid, gid int
	mode     fs.FileMode
}

// attributes are those that the resource's file should have: as the resource says, else as they are, else this process' and 0644, or 0600
// if there may be a password in it.
func (s *Resource) attributes(old *attributes, secret bool) attributes {
	want := attributes{os.Geteuid(), os.Getegid(), 0o644}
	if secret {
		want.mode = 0o600
	}
	if old != nil {
		want = *old
	}
	if s.uid >= 0 {
		want.uid = s.uid
	}
	if s.gid >= 0 {
		want.gid = s.gid
	}
	if s.Mode != "" {
		want.mode = s.mode
	}
	return want
}
