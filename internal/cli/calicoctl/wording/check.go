package wording

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/twillnet/twill/internal/ipam"
)

// Checked is what a check of addresses found.
type Checked struct {
	Looked   ipam.Counts
	Findings []ipam.Finding
}

// Check prints the counts by which scripts know a check of addresses, and with problems also each thing that is wrong.
//
// What is counted is what twill's check finds, which proves more: a young allocation without an endpoint is no leak yet.
func Check(w io.Writer, c Checked, problems bool) {
	n, of := c.Looked, map[string]int{}
	wrong := 0
	for _, f := range c.Findings {
		if f.Kind == ipam.FoundLeak && f.Fix == "" {
			continue // too young, or not proven
		}
		of[f.Kind]++
		wrong++
	}
	fmt.Fprintf(w, "Checking IPAM for inconsistencies...\n\nLoading all IPAM blocks...\nFound %d IPAM blocks.\nIPAM blocks record %d allocations.\n\n", n.Blocks, n.Addresses)
	fmt.Fprintf(w, "Loading all IPAM pools...\nFound %d active IP pools.\n\nLoading all nodes.\nLoading all workload endpoints.\nWorkloads and nodes are using %d IPs.\n\n", n.Pools, n.Endpoints)
	for _, part := range []struct{ kind, scan, found string }{
		{ipam.FoundLeak, "Scanning for IPs that are allocated but not actually in use...", "Found %d IPs that are allocated in IPAM but not actually in use."},
		{ipam.FoundEndpoint, "Scanning for IPs that are in use by a workload or node but not allocated in IPAM...", "Found %d in-use IPs that are in active IP pools but have no corresponding IPAM allocation."},
		{ipam.FoundHandle, "Scanning for IPAM handles with no matching IPs...", fmt.Sprintf("Found %%d handles with no matching IPs (and %d handles with matches).", max(0, n.Handles-of[ipam.FoundHandle]))},
	} {
		fmt.Fprintln(w, part.scan)
		for _, f := range c.Findings {
			if problems && f.Kind == part.kind && (f.Kind != ipam.FoundLeak || f.Fix != "") {
				fmt.Fprintf(w, "  %s %s: %s\n", aboutWhat(f), f.Problem, f.Proof)
			}
		}
		fmt.Fprintf(w, part.found+"\n", of[part.kind])
	}
	for _, f := range c.Findings { // what calicoctl does not look for is always printed
		if f.Kind == ipam.FoundBlock || f.Kind == ipam.FoundClaim || f.Kind == ipam.FoundBroken {
			fmt.Fprintf(w, "%s %s: %s\n", aboutWhat(f), f.Problem, f.Proof)
		}
	}
	fmt.Fprintf(w, "Check complete; found %d problems.\n", wrong)
}

// aboutWhat is the address, the handle or the block of a finding.
func aboutWhat(f ipam.Finding) string {
	switch {
	case f.Address.IsValid():
		return f.Address.String()
	case f.Handle != "":
		return f.Handle
	}
	return f.Block
}

// Common is the first of several reports of a check, with what is in all of them: the same allocation of an address, by handle and
// sequence number. An address that one of them does not name may have been given out only for a moment.
func Common(reports [][]byte) ([]byte, error) {
	var first map[string]json.RawMessage
	var left []json.RawMessage
	for i, report := range reports {
		var whole map[string]json.RawMessage
		var all []json.RawMessage
		if err := json.Unmarshal(report, &whole); err != nil {
			return nil, err
		}
		if err := json.Unmarshal(whole["findings"], &all); err != nil {
			return nil, fmt.Errorf("a report has no findings: %w", err)
		}
		if i == 0 {
			first, left = whole, all
			continue
		}
		there := map[string]bool{}
		for _, f := range all {
			there[allocation(f)] = true
		}
		left = slices.DeleteFunc(left, func(f json.RawMessage) bool { return !there[allocation(f)] })
	}
	var err error
	if first["findings"], err = json.Marshal(left); err != nil {
		return nil, err
	}
	return json.Marshal(first)
}

// allocation names the kind of a finding, and the allocation that it is about: findings of two reports that have the same are the same.
func allocation(finding []byte) string {
	var f ipam.Finding
	_ = json.Unmarshal(finding, &f) // what cannot be read is like nothing
	return fmt.Sprint(f.Kind, " ", f.Address, " ", f.Handle, " ", f.Sequence)
}
