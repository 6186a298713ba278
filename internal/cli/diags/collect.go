// Package diags collects what is needed to find a fault of a host in one archive, without secrets.
package diags

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/terminal"
)

// Limits of one file of the archive.
const (
	longest = 32 << 20 // bytes
	patient = 30 * time.Second
)

// collector collects.
type collector struct {
	exe      string   // this binary
	flags    []string // of the command, which say where the datastore is
	socket   string   // the agent's
	secrets  secrets
	progress io.Writer
	within   time.Duration // for one source
}

// part is what became of a source, for the index.
type part struct {
	File   string `json:"file"`
	From   string `json:"from"` // the command, the file, or the path at the agent's socket
	Bytes  int    `json:"bytes"`
	Result string `json:"result"` // ok, or why not
}

// ok is the result of what was collected whole.
const ok = "ok"

// archive writes all sources into an archive, below a directory, with an index. Its error is of writing alone.
func (c collector) archive(ctx context.Context, w io.Writer, dir string, all []source) (parts []part, err error) {
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	add := func(name string, content []byte) error {
		h := &tar.Header{Name: path.Join(dir, name), Mode: 0o600, Size: int64(len(content)), ModTime: time.Now(), Typeflag: tar.TypeReg}
		if err := t.WriteHeader(h); err != nil {
			return err
		}
		_, err := t.Write(content)
		return err
	}
	for _, s := range all {
		if err := ctx.Err(); err != nil {
			return parts, err
		}
		for _, f := range c.read(ctx, s, parts) {
			content := c.secrets.hide(f.content)
			p := part{File: f.name, From: f.from, Bytes: len(content), Result: ok}
			if f.err != nil {
				p.Result = string(c.secrets.hide([]byte(f.err.Error())))
			}
			if len(content) > 0 {
				if err := add(f.name, content); err != nil {
					return parts, err
				}
			}
			parts = append(parts, p)
			fmt.Fprintf(c.progress, "  %s: %s\n", f.name, p.Result)
		}
	}
	var index bytes.Buffer
	table := terminal.NewTable(&index, "FILE", "FROM", "BYTES", "RESULT")
	for _, p := range parts {
		table.Row(p.File, p.From, fmt.Sprint(p.Bytes), p.Result)
	}
	if err := table.Flush(); err != nil {
		return parts, err
	}
	return parts, errors.Join(add("index.txt", c.secrets.hide(index.Bytes())), t.Close(), z.Close())
}

// found is a file that a source has.
type found struct {
	name, from string
	content    []byte
	err        error
}

// read reads a source, unless one that it needs was not to be had before.
func (c collector) read(ctx context.Context, s source, before []part) []found {
	if i := slices.IndexFunc(before, func(p part) bool { return p.File == s.needs }); i >= 0 && before[i].Result != ok {
		return []found{{s.name, strings.Join(s.args, " "), nil, fmt.Errorf("left out, since %s could not be had", s.needs)}}
	}
	ctx, cancel := context.WithTimeout(ctx, c.within)
	defer cancel()
	switch {
	case s.args != nil:
		content, err := c.run(ctx, s.args)
		return []found{{s.name, strings.Join(s.args, " "), content, err}}
	case s.ask != "":
		content, err := agent.Read(ctx, c.socket, s.ask, longest)
		return []found{{s.name, s.ask + " of " + c.socket, content, err}}
	}
	names, err := filepath.Glob(s.glob)
	if err != nil {
		return []found{{path.Join(s.name, filepath.Base(s.glob)), s.glob, nil, err}}
	}
	var out []found
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
			continue // a socket, or a directory
		}
		content, err := readTail(name, longest)
		out = append(out, found{path.Join(s.name, name), name, content, err})
	}
	return out
}

// run runs a program, and returns what it prints, to whichever output.
func (c collector) run(ctx context.Context, args []string) ([]byte, error) {
	name := args[0]
	if name == twill {
		name, args = c.exe, append(args[:len(args):len(args)], c.flags...)
	}
	cmd := exec.CommandContext(ctx, name, args[1:]...)
	cmd.Args[0] = args[0] // whatever the file's name is: a name of upstream's would mean something else
	cmd.WaitDelay = time.Second
	var out limited
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		err = errors.New("this host does not have the program")
	case ctx.Err() != nil:
		err = fmt.Errorf("it did not end within %v", c.within)
	case errors.As(err, &exit) && exit.Exited():
		err = fmt.Errorf("exit code %d", exit.ExitCode())
	case err == nil && out.lost > 0:
		err = fmt.Errorf("the last %d bytes are left out", out.lost)
	}
	return out.Bytes(), err
}

// limited keeps the first bytes that are written, and counts the others.
type limited struct {
	bytes.Buffer
	lost int
}

// Write is part of io.Writer. It never fails, so that no program dies of it.
func (l *limited) Write(b []byte) (int, error) {
	room := min(len(b), longest-l.Len())
	l.Buffer.Write(b[:room])
	l.lost += len(b) - room
	return len(b), nil
}

// readTail reads the last bytes of a file, whose beginning is named in the error if it is left out.
func readTail(name string, most int64) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	from := max(0, info.Size()-most) // a file of /proc says that it has nothing
	if _, err := f.Seek(from, io.SeekStart); err != nil {
		return nil, err
	}
	content, err := io.ReadAll(io.LimitReader(f, most))
	if err == nil && from > 0 {
		err = fmt.Errorf("the first %d bytes are left out", from)
	}
	return content, err
}
