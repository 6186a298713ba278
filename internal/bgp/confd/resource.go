package confd

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/user"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"
)

// Resource is a template resource: a file of conf.d, with the fields that confd documents.
type Resource struct {
	Src       string   `toml:"src"`    // the template, in templates
	Dest      string   `toml:"dest"`   // the file that is written
	Prefix    string   `toml:"prefix"` // of keys; templates do not see it
	Keys      []string `toml:"keys"`   // what keys begin with that the template may read
	UID       *int     `toml:"uid"`
	GID       *int     `toml:"gid"`
	Owner     string   `toml:"owner"`
	Group     string   `toml:"group"`
	Mode      string   `toml:"mode"`
	CheckCmd  string   `toml:"check_cmd"`
	ReloadCmd string   `toml:"reload_cmd"`

	file     string // its name in conf.d
	uid, gid int    // -1: as they are
	mode     fs.FileMode
}

// Load reads the template resources of a directory, in the order of their names. Errors are of files that cannot be used, by name.
// A directory that does not exist has none.
func Load(dir, node string) (all []*Resource, errs map[string]error) {
	errs = map[string]error{}
	entries, err := os.ReadDir(filepath.Join(dir, "conf.d"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		errs["conf.d"] = err
	}
	writers := map[string]string{}
	for _, e := range entries {
		if filepath.Ext(e.Name()) != ".toml" {
			continue
		}
		r, err := read(filepath.Join(dir, "conf.d", e.Name()), node)
		if err == nil && writers[r.Dest] != "" {
			err = fmt.Errorf("dest %s is written by %s", r.Dest, writers[r.Dest])
		}
		if err != nil {
			errs[e.Name()] = err
			continue
		}
		writers[r.Dest] = e.Name()
		all = append(all, r)
	}
	return all, errs
}

func read(file, node string) (*Resource, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var content struct {
		Template *Resource `toml:"template"`
	}
	dec := toml.NewDecoder(bytes.NewReader(text)).DisallowUnknownFields()
	if err := dec.Decode(&content); err != nil {
		return nil, explain(err)
	}
	r := content.Template
	if r == nil {
		return nil, errors.New("there is no [template] in it")
	}
	r.file = filepath.Base(file)
	return r, r.check(node)
}

// explain says where in a file an error is.
func explain(err error) error {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var names []string
		for _, e := range unknown.Errors {
			row, _ := e.Position()
			names = append(names, fmt.Sprintf("line %d: there is no field %s", row, strings.Join(e.Key(), ".")))
		}
		return errors.New(strings.Join(names, "; "))
	}
	var wrong *toml.DecodeError
	if errors.As(err, &wrong) {
		row, _ := wrong.Position()
		return fmt.Errorf("line %d: %w", row, err)
	}
	return err
}

// check fills in what follows from the fields, or says which of them cannot be used.
func (r *Resource) check(node string) (err error) {
	switch {
	case r.Src == "" || !filepath.IsLocal(r.Src):
		return fmt.Errorf("src %q: want the name of a file in templates", r.Src)
	case !filepath.IsAbs(r.Dest) || strings.HasSuffix(r.Dest, "/"):
		return fmt.Errorf("dest %q: want the absolute path of a file", r.Dest)
	}
	r.Dest = filepath.Clean(r.Dest)
	if r.uid, err = id("uid", r.UID, "owner", r.Owner, owner); err != nil {
		return err
	}
	if r.gid, err = id("gid", r.GID, "group", r.Group, group); err != nil {
		return err
	}
	if r.Mode != "" {
		mode, err := strconv.ParseUint(strings.TrimPrefix(r.Mode, "0o"), 8, 32)
		if err != nil || mode > 0o777 {
			return fmt.Errorf("mode %q: want an octal number of at most 0777", r.Mode)
		}
		r.mode = fs.FileMode(mode)
	}
	// Upstream's template sets have //NODENAME where the node's name goes.
	named := func(s string) string { return strings.ReplaceAll(s, "//NODENAME", "/"+node) }
	r.Prefix = path.Clean("/" + named(r.Prefix))
	r.Keys = slices.Clone(r.Keys)
	for i, k := range r.Keys {
		r.Keys[i] = path.Join(r.Prefix, named(k))
	}
	return nil
}

// id is a user or group, by number or by name; -1: neither is given.
func id(field string, number *int, nameField, name string, find func(string) (string, error)) (int, error) {
	if number != nil && name != "" {
		return -1, fmt.Errorf("%s and %s: want one of them", field, nameField)
	}
	if number != nil {
		if *number < 0 {
			return -1, fmt.Errorf("%s %d: want 0 or more", field, *number)
		}
		return *number, nil
	}
	if name == "" {
		return -1, nil
	}
	text, err := find(name)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", nameField, err)
	}
	return strconv.Atoi(text)
}

func owner(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", err
	}
	return u.Uid, nil
}

func group(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", err
	}
	return g.Gid, nil
}

// Stamp changes when something in conf.d or templates of a directory does.
func Stamp(dir string) string {
	var out strings.Builder
	for _, part := range []string{"conf.d", "templates"} {
		_ = filepath.WalkDir(filepath.Join(dir, part), func(path string, _ fs.DirEntry, err error) error {
			if err != nil {
				return nil //nolint:nilerr // Load and the template's error say it
			}
			if info, err := os.Stat(path); err == nil {
				fmt.Fprintln(&out, path, info.ModTime().UnixNano(), info.Size(), info.Mode())
			}
			return nil
		})
	}
	return out.String()
}
