package cni

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/twillnet/twill/internal/attach/wire"
)

// writeNote leaves a detachment for an agent that does not run.
func writeNote(dir string, r wire.Ref) error {
	text, err := json.Marshal(r)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	name := filepath.Join(dir, filepath.Base(r.NoteName()))
	if err := os.WriteFile(name+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name+".json")
}
