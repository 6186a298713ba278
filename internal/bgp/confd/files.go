package confd

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// statOf are the attributes of a file; nil: there is none.
func statOf(file string) (*attributes, error) {
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() {
		return nil, fmt.Errorf("dest %s is no regular file", file)
	}
	return &attributes{int(s.Uid), int(s.Gid), info.Mode().Perm()}, nil
}

// stageOf writes a new file next to its destination, so that it can be renamed to it, and so that what it includes by relative names is
// found by a check. Its name begins with a dot: no pattern of included files matches it.
func stageOf(dest string, text []byte, want attributes) (string, error) {
	name := filepath.Join(filepath.Dir(dest), "."+filepath.Base(dest)+".new")
	if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) { // of a process that was killed
		return "", err
	}
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return "", err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chown(want.uid, want.gid), f.Chmod(want.mode), f.Close())
	if err != nil {
		return "", errors.Join(err, os.Remove(name))
	}
	return name, nil
}
