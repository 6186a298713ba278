// Command bench makes the figures of docs/benchmarks.md that are measured by packets.
//
// In: flags (-h), and a built twill. Out: a file of results, and tables: on standard output, or with -page in a page, with plots next to it. How far it is
// goes to standard error.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twillnet/twill/internal/bench"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// asked is what flags ask for.
type asked struct {
	config      bench.Config
	results     string
	page        string
	version     string
	connections bool
	changes     bool
}

func run(ctx context.Context, args []string) error {
	a, err := parse(args)
	if err != nil {
		return err
	}
	began := time.Now()
	a.config.Say = func(format string, v ...any) {
		fmt.Fprintf(os.Stderr, "%6.0f s  %s\n", time.Since(began).Seconds(), fmt.Sprintf(format, v...))
	}
	r, err := bench.Read(a.results)
	if errors.Is(err, os.ErrNotExist) {
		r, err = &bench.Results{}, nil
	}
	if err != nil {
		return err
	}
	a.config.Keep = func() error {
		r.Machine.Ended()
		return r.Save(a.results)
	}
	for _, part := range []struct {
		wanted  bool
		measure func(context.Context, *bench.Results) error
	}{{a.connections, a.config.Connections}, {a.changes, a.config.Changes}} {
		if !part.wanted {
			continue
		}
		r.Machine = bench.ThisMachine(a.version)
		if err := part.measure(ctx, r); err != nil {
			return err
		}
	}
	if a.page == "" {
		_, err := fmt.Print(r.Tables())
		return err
	}
	return r.Publish(a.page, filepath.Join(filepath.Dir(a.page), "plots"))
}

func parse(args []string) (*asked, error) {
	a := &asked{}
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.StringVar(&a.config.Twill.Program, "twill", "bin/twill", "the `program` that is measured")
	f.StringVar(&a.version, "version", "", "what it is called in the results")
	f.StringVar(&a.config.Scratch, "scratch", "/dev/shm", "`directory` for the data of etcd")
	f.StringVar(&a.results, "results", "bin/bench.json", "`file` of all results; parts that are not measured now stay as they are in it")
	f.StringVar(&a.page, "page", "", "`page` whose tables are written, with plots next to it in plots/; empty: tables are printed")
	parts := f.String("parts", "connections,changes", "what to measure; empty: nothing, to write the page again")
	policies := f.String("policies", "1,10,100,1000,10000", "numbers of policies for connections")
	points := f.String("points", "1x10000,10x10000,100x10000,1000x10000,10000x10000,1000x100000,1000x250000,10000x100000",
		"worlds for changes: POLICIESxENDPOINTS")
	f.IntVar(&a.config.Pairs, "pairs", 7, "rounds of connections; in each, all ways are measured")
	f.IntVar(&a.config.Block, "block", 10_000, "connections in a row, at most")
	f.IntVar(&a.config.Stream, "stream", 512<<20, "bytes of a stream")
	f.IntVar(&a.config.Rounds, "rounds", 7, "starts of an agent in each world and rendering")
	f.IntVar(&a.config.Each, "each", 30, "changes of each kind after each start")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if a.config.Policies, err = numbers(*policies, ","); err != nil {
		return nil, err
	}
	for p := range strings.SplitSeq(*points, ",") {
		n, err := numbers(p, "x")
		if err != nil || len(n) != 2 {
			return nil, fmt.Errorf("-points: %q is not POLICIESxENDPOINTS", p)
		}
		a.config.Points = append(a.config.Points, bench.Point{Policies: n[0], Endpoints: n[1]})
	}
	for p := range strings.SplitSeq(*parts, ",") {
		switch p {
		case "connections":
			a.connections = true
		case "changes":
			a.changes = true
		case "":
		default:
			return nil, fmt.Errorf("-parts: %q is neither connections nor changes", p)
		}
	}
	return a, nil
}

// numbers are positive ones with a separator.
func numbers(text, separator string) (out []int, err error) {
	for t := range strings.SplitSeq(text, separator) {
		n, err := strconv.Atoi(t)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q is not a positive number", t)
		}
		out = append(out, n)
	}
	return out, nil
}
