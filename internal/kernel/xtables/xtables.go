// Package xtables reads and restores iptables rules, of both backends: "legacy" (the kernel's ip_tables) and "nft" (iptables' own
// chains in nf_tables).
//
// In: the network namespace of the calling thread. Out: the chains of legacy tables, which the kernel says itself, and the
// text of all tables, which goes through the programs iptables-save and iptables-restore. Package nftables lists the chains
// of the other backend.
package xtables

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// Backend is where the rules are kept.
type Backend string

// Backends, as iptables names them.
const (
	Legacy Backend = "legacy"
	NFT    Backend = "nft"
)

// Family is the one whose packets the rules see, named as in nftables.
type Family string

// Families.
const (
	IPv4 Family = "ip"
	IPv6 Family = "ip6"
)

// Tables are all tables of iptables, in the order in which one takes rules out: filter decides, and the others only prepare what it decides.
var Tables = []string{"filter", "mangle", "raw", "nat", "security"}

// ErrNoProgram: iptables is not installed, or not for that backend.
var ErrNoProgram = errors.New("the program is not installed")

// ErrNotIPTables: a table of backend nft has rules that iptables cannot express. It leaves out such
// rules, or all of the table, and ends without an error.
var ErrNotIPTables = errors.New("iptables cannot read what somebody put there with nft")

// ErrLocked: another program held the lock of the legacy backend for all the time that this one waits.
var ErrLocked = errors.New("another program holds the lock of iptables (fuser /run/xtables.lock names it): let it end")

// lockWait is how long to wait for that lock, in seconds. The wait is in the kernel (flock), so nothing asks in intervals, and who waits is next.
// Backend nft has no lock: there the kernel refuses a transaction that another one came before, and the program repeats it.
const lockWait = 10

// setTries is how often tables are read while another program deletes sets of theirs.
const setTries = 20

// Save is the text of all tables, as iptables-save prints it, if it is all there. The program reads the rules first, and then asks the kernel for the name of each set,
// which a rule has as a number: if another one has deleted both in between, it ends with an error, and is run again.
func Save(ctx context.Context, b Backend, f Family) (string, error) {
	out, err := run(ctx, b, f, "save", "")
	for try := 1; err != nil && try < setTries && strings.Contains(err.Error(), "in kernel doesn't exist"); try++ {
		out, err = run(ctx, b, f, "save", "")
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "# Table") && strings.Contains(line, "incompatible") {
			return "", fmt.Errorf("%w: %s", ErrNotIPTables, strings.TrimSpace(strings.TrimPrefix(line, "# ")))
		}
	}
	return out, err
}

// Restore applies text in the form of iptables-restore. Chains that it does not name stay as they are. Each table of the text
// is changed in one step, one after the other; at the first that is refused it ends. It waits 10 s for another program that holds the
// lock of the legacy backend, and then returns [ErrLocked], with nothing changed.
func Restore(ctx context.Context, b Backend, f Family, text string) error {
	return restore(ctx, b, f, text, lockWait)
}

// restore waits some seconds for the lock.
func restore(ctx context.Context, b Backend, f Family, text string, wait int) error {
	_, err := run(ctx, b, f, "restore", text, "--noflush", "-w", strconv.Itoa(wait))
	if err != nil && strings.Contains(err.Error(), "holding the xtables lock") {
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}

// Installed reports whether the programs of a backend are there, for both families.
func Installed(b Backend) bool {
	for _, f := range []Family{IPv4, IPv6} {
		for _, verb := range []string{"save", "restore"} {
			if _, err := program(context.Background(), b, f, verb); err != nil {
				return false
			}
		}
	}
	return true
}

func run(ctx context.Context, b Backend, f Family, verb, input string, args ...string) (string, error) {
	name, err := program(ctx, b, f, verb)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdin = strings.NewReader(input)
	var out, problem bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problem
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(problem.String()))
	}
	return out.String(), nil
}

// program finds that of a backend: iptables-legacy-save, or iptables-save if it is of that backend. Only one of the two
// may be there: some distributions have no legacy one, and before iptables 1.8 there was no other.
func program(ctx context.Context, b Backend, f Family, verb string) (string, error) {
	command := map[Family]string{IPv4: "iptables", IPv6: "ip6tables"}[f]
	full := fmt.Sprintf("%s-%s-%s", command, b, verb)
	if path, err := exec.LookPath(full); err == nil {
		return path, nil
	}
	path, err := exec.LookPath(command + "-" + verb)
	if err != nil {
		return "", fmt.Errorf("%s: %w", full, ErrNoProgram)
	}
	version, err := exec.CommandContext(ctx, path, "-V").Output()
	if err != nil {
		return "", fmt.Errorf("%s -V: %w", path, err)
	}
	if backend(string(version)) != b {
		return "", fmt.Errorf("%s: %w", full, ErrNoProgram)
	}
	return path, nil
}

// backend reads "iptables-save v1.8.9 (nf_tables)"; before 1.8 there are no words in parentheses.
func backend(version string) Backend {
	if strings.Contains(version, "nf_tables") {
		return NFT
	}
	return Legacy
}
