package wording

import (
	"encoding/json"
	"fmt"
	"io"

	"github.com/twillnet/twill/internal/resources/policynames"
)

// Migrated prints how many policies have the names of their users now. Steps are the answer of `twill datastore migrate-policy-names -o json`.
func Migrated(w io.Writer, steps []byte) error {
	var done []policynames.Step
	if err := json.Unmarshal(steps, &done); err != nil {
		return err
	}
	n := 0
	for _, s := range done {
		if s.What == policynames.Renamed || s.What == policynames.Removed {
			n++
		}
	}
	_, err := fmt.Fprintf(w, "Policy name migration complete, migrated %d policies.\n", n)
	return err
}
