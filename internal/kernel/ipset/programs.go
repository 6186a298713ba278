package ipset

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
)

// ErrNoProgram: ipset is not installed.
var ErrNoProgram = errors.New("ipset is not installed")

// Installed reports whether ipset is there.
func Installed() bool {
	_, err := exec.LookPath("ipset")
	return err == nil
}

// Save is the text of all sets with their members, as `ipset save` prints it.
func Save(ctx context.Context) (string, error) { return run(ctx, "", "save") }

// Restore carries out the lines of a text in the form of `ipset save`, one by one: those before one that fails stay. What is there already, or gone
// already, is no failure.
func Restore(ctx context.Context, text string) error {
	_, err := run(ctx, text, "-exist", "restore")
	return err
}

func run(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "ipset", args...)
	cmd.Stdin = strings.NewReader(input)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	switch err := cmd.Run(); {
	case errors.Is(err, exec.ErrNotFound):
		return "", ErrNoProgram
	case err != nil:
		return "", fmt.Errorf("ipset %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}
