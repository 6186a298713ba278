package addresses

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/ipam/report"
)

// Releasing says what to release.
type Releasing struct {
	Files   []string // reports
	Force   bool     // also with reports of another version, and while the datastore is not locked
	Version string   // of this program
}

// Release frees what all reports hold leaked, and prints what calicoctl prints. What stays is printed with the reason, and is no error.
func Release(ctx context.Context, w io.Writer, s datastore.Store, o Releasing) error {
	cluster, err := report.ClusterOf(ctx, s)
	if err != nil {
		return err
	}
	if cluster.Info == nil {
		return errors.New("resource does not exist: ClusterInformation(default) with error: <nil>")
	}
	reports, err := o.read(w, cluster)
	if err != nil {
		return err
	}
	if !cluster.Info.Spec.Locked() {
		if !o.Force {
			return errors.New("data store is not locked. Either lock the data store, or re-run with --force")
		}
		fmt.Fprintln(w, "WARNING: Data store is not locked. Ignoring due to --force option")
	}
	leaks, handles := report.Common(reports)
	r := release{w, ipam.New(s, ipam.Config{})}
	if err := errors.Join(r.addresses(ctx, leaks), r.handles(ctx, handles)); err != nil {
		return err
	}
	fmt.Fprintln(w, "You may now unlock the data store.")
	return nil
}

// read reads the reports, and refuses those of another cluster, or that are all of another time.
func (o Releasing) read(w io.Writer, c report.Cluster) (out []report.Report, err error) {
	current := false
	for _, file := range o.Files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		r, err := report.Read(text)
		switch {
		case err != nil:
			return nil, fmt.Errorf("%s: want what ipam check -o FILE writes: %w", file, err)
		case r.ClusterGUID != c.Info.Spec.ClusterGUID:
			return nil, fmt.Errorf("cluster does not match the provided report (%s): mismatched cluster GUID. Refusing to release", file)
		case r.Version != o.Version && !o.Force:
			return nil, fmt.Errorf("the provided report (%s) was produced using a different version (%s) of calicoctl. Refusing to release", file, r.Version)
		case r.Version != o.Version:
			fmt.Fprintln(w, "WARNING: Report was produced using a different version of calicoctl. Ignoring due to --force option")
		}
		current = current || r.ClusterRevision == c.Revision.String()
		out = append(out, r)
	}
	if !current {
		return nil, errors.New("the provided reports are all stale - at least one should be up-to-date. Please generate a new report while the data store is locked and try again")
	}
	return out, nil
}

// release is one.
type release struct {
	io.Writer
	of *ipam.Allocator
}

func (r release) addresses(ctx context.Context, leaks []ipam.Release) error {
	if len(leaks) == 0 {
		fmt.Fprintln(r, "Report didn't contain any leaked IPs to clean up.")
		return nil
	}
	v, err := r.of.ReadSurvey(ctx)
	if err != nil {
		return err
	}
	of := report.Now(v)
	var free []ipam.Release
	gone := 0
	for _, l := range leaks {
		switch why := report.Kept(l, of[l.Addr]); {
		case len(of[l.Addr]) == 0 || of[l.Addr][0].Cooling:
			gone++
		case why != "":
			fmt.Fprintf(r, "  %s is kept: %s\n", l.Addr, why)
		default:
			free = append(free, l)
		}
	}
	fmt.Fprintf(r, "Releasing %d old IPs...\n", len(free))
	freed, err := r.of.Release(ctx, free...)
	if err != nil {
		fmt.Fprintf(r, "An error occurred while releasing some IPs: %v.  Problems are often caused by an out-of-date IPAM report.  Try regenerating the IPAM report and retry.\n", err)
	}
	if len(freed) > 0 {
		fmt.Fprintf(r, "Released %d IPs successfully\n", len(freed))
	}
	if gone > 0 {
		fmt.Fprintf(r, "%d addresses marked as leaked in the report had already been cleaned up.\n", gone)
	}
	return err
}

func (r release) handles(ctx context.Context, handles []report.Handle) error {
	if len(handles) == 0 {
		fmt.Fprintln(r, "Report didn't contain any handles to clean up.")
		return nil
	}
	v, err := r.of.ReadSurvey(ctx)
	if err != nil {
		return err
	}
	stored := map[string]ipam.HandleRecord{}
	for _, h := range v.Handles() {
		stored[h.ID] = h
	}
	var gone []ipam.Finding
	for _, f := range v.Check(ipam.CheckOptions{Now: time.Now(), Grace: report.Grace}) {
		now := stored[f.Handle]
		of := report.Handle{ID: now.ID, Revision: now.Revision.String()}
		if f.Kind == ipam.FoundHandle && now.Stored && !now.Named && slices.ContainsFunc(handles, func(h report.Handle) bool { return h.ID == of.ID && h.Revision == of.Revision }) {
			gone = append(gone, f)
		}
	}
	fmt.Fprintf(r, "Deleting %d handles...\nKey: '.' = Deleted OK; 'x' = skip, handle missing/changed.\n%s", len(handles), strings.Repeat("x", len(handles)-len(gone)))
	var deleted, skipped, failed int
	var errs []error
	skipped = len(handles) - len(gone)
	for _, d := range r.of.Repair(ctx, gone) {
		switch {
		case d.Err == nil:
			deleted++
			fmt.Fprint(r, ".")
		case errors.Is(d.Err, datastore.ErrConflict) || ipam.IsStale(d.Err):
			skipped++
			fmt.Fprint(r, "x")
		default:
			failed++
			fmt.Fprintf(r, "\nDeleting handle %s failed: %v.\n", d.Handle, d.Err)
			errs = append(errs, d.Err)
		}
	}
	fmt.Fprintf(r, "\nReleased %d handles; %d skipped; %d errors.\n", deleted, skipped, failed)
	return errors.Join(errs...)
}
