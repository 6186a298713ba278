package paths

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/clustercheck"
	"github.com/twillnet/twill/internal/datastore/kubestore/apiserver"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) clusterCmd() *cobra.Command {
	cfg := clustercheck.Config{Start: 2 * time.Minute, Settle: 30 * time.Second}
	var output console.Output
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Try the network of a Kubernetes cluster from pods that it starts",
		Long: `Start two pods on each node, in a namespace of their own, and try from them what users
count on: that pods reach each other on a node and between nodes, by TCP and UDP, in
each family, and with packets of full size; that they reach services, names, the API
server and nodes; that kubelet reaches them; and that NetworkPolicies come into force,
hold, and go. Then delete the namespace. Everything else in the cluster stays as it is.

The cluster is reached as kubectl does it (KUBECONFIG). Pods run the image of Twill's
own, which each node has; with --image, any that has /usr/bin/twill. They need no
rights: the namespace enforces the Pod Security Standard "restricted".

Nodes that are not Ready, or take no pods, are left out and named. -o wide shows each
try; without it there is a line for each test, and one for each try that failed.

Exit code: 0 all is as it should be, 1 something is not, or could not be tried, 2 usage.`,
		Example: `  twill check cluster
  twill check cluster --nodes 3 --egress 192.0.2.10:443
  twill check cluster -o json > report.json`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cfg.Nodes < 0 || cfg.Start <= 0 || cfg.Settle <= 0 {
				return console.Usage("check cluster: --nodes, --start-timeout and --settle are more than nothing")
			}
			return c.tryCluster(cmd.Context(), cfg, output)
		},
	}
	f := cmd.Flags()
	f.IntVar(&cfg.Nodes, "nodes", 0, "how many nodes take part, by chance; 0: all that are Ready")
	f.StringVar(&cfg.Image, "image", "", "of the pods (default that of Twill's own pods in the cluster)")
	f.StringVar(&cfg.Egress, "egress", "", "ADDRESS:PORT outside of the cluster to which pods should be able to connect")
	f.BoolVar(&cfg.Keep, "keep", false, "leave the namespace and its pods, to look at them; end after what fails first, and say what to ask twill why")
	f.DurationVar(&cfg.Start, "start-timeout", cfg.Start, "how long pods may take to be Ready")
	f.DurationVar(&cfg.Settle, "settle", cfg.Settle, "how long a policy may take to be in force, and each try to succeed")
	output.AddFlag(cmd)
	return cmd
}

func (c *command) tryCluster(ctx context.Context, cfg clustercheck.Config, output console.Output) error {
	_, cluster, err := c.Conn.WithCluster()
	if err != nil {
		return err
	}
	if cfg.API, err = apiserver.NewOperator(cluster); err != nil {
		return err
	}
	p, end := c.Working("trying the cluster", 0)
	cfg.Now = p.Now
	found, failure := clustercheck.Run(ctx, cfg)
	end()
	if failure != nil {
		failure = fmt.Errorf("check cluster: %w", failure)
	}
	if len(found) == 0 && failure != nil {
		return failure
	}
	if err := c.Answer(output, console.Answer{Doc: found, Name: ".test", Kind: "test", Table: func(w io.Writer, wide bool) error {
		return printTried(w, found, wide)
	}}); err != nil || failure != nil {
		return errors.Join(failure, err)
	}
	if slices.ContainsFunc(found, func(r clustercheck.Result) bool { return r.Result == clustercheck.Failed }) {
		return console.Exit{Code: 1}
	}
	return nil
}

// printTried prints a line for each test, in the order in which they were tried, and for each try that failed.
func printTried(w io.Writer, found []clustercheck.Result, wide bool) error {
	if wide {
		t := terminal.NewTable(w, "TEST", "FROM", "TO", "RESULT", "TOOK", "DETAIL", "WHY")
		for _, r := range found {
			t.Row(r.Test, cmp.Or(r.From, "-"), cmp.Or(r.To, "-"), r.Result, duration(r.Took), cmp.Or(r.Detail, "-"), cmp.Or(r.Why, "-"))
		}
		return t.Flush()
	}
	t := terminal.NewTable(w, "TEST", "RESULT", "SLOWEST", "DETAIL")
	var failed []clustercheck.Result
	for rest := found; len(rest) > 0; {
		same := func(r clustercheck.Result) bool { return r.Test == rest[0].Test }
		var of []clustercheck.Result
		of, rest = split(rest, same)
		t.Row(summary(of)...)
		for _, r := range of {
			if r.Result == clustercheck.Failed {
				failed = append(failed, r)
			}
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	if len(failed) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	for _, r := range failed {
		fmt.Fprintf(w, "%s: from %s to %s: %s\n", r.Test, r.From, r.To, r.Detail)
		if r.Why != "" {
			fmt.Fprintf(w, "  %s\n", r.Why)
		}
	}
	next := "twill check cluster --keep, which ends after what fails first, leaves it as it is, and says what to ask twill why; and twill status on these nodes."
	if slices.ContainsFunc(failed, func(r clustercheck.Result) bool { return r.Why != "" }) {
		next = "the calls above say whether policy has denied it; and twill status on these nodes. Then delete the namespace."
	}
	_, err := fmt.Fprintln(w, "\nTo look closer: "+next)
	return err
}

// split returns those of which it is so, and the others.
func split(all []clustercheck.Result, is func(clustercheck.Result) bool) (yes, no []clustercheck.Result) {
	for _, r := range all {
		if is(r) {
			yes = append(yes, r)
		} else {
			no = append(no, r)
		}
	}
	return yes, no
}

// summary is the line of one test.
func summary(of []clustercheck.Result) []string {
	var ok, failed int
	var slowest time.Duration
	detail := of[0].Detail
	for _, r := range of {
		switch r.Result {
		case clustercheck.OK:
			ok++
			slowest = max(slowest, r.Took)
		case clustercheck.Failed:
			failed++
		}
		if r.Detail != detail {
			detail = ""
		}
	}
	switch {
	case failed > 0:
		return []string{of[0].Test, fmt.Sprintf("FAILED %d of %d", failed, ok+failed), duration(slowest), "below"}
	case ok == 0:
		return []string{of[0].Test, clustercheck.Skipped, "-", cmp.Or(strings.TrimSpace(of[0].From+" "+of[0].Detail), "-")}
	}
	return []string{of[0].Test, fmt.Sprintf("ok %d", ok), duration(slowest), cmp.Or(detail, "-")}
}

func duration(d time.Duration) string {
	switch {
	case d == 0:
		return "-"
	case d < time.Second:
		return d.Round(10 * time.Microsecond).String()
	}
	return d.Round(10 * time.Millisecond).String()
}

// probeCmds are what the pods of `twill check cluster` run.
func (c *command) probeCmds() []*cobra.Command {
	return []*cobra.Command{
		{
			Use: "serve", Short: "Answer other probes, in a pod of twill check cluster", Hidden: true, Args: console.NoArgs,
			Long: `Answer at port 8080: HTTP with the pod's name (POD), and UDP with what came. The pods that
"twill check cluster" starts run it, until they are ended.

Exit code: 0 ended by a signal, 1 the port is taken, 2 usage.`,
			Example: "  POD=b-0 twill check serve",
			RunE: func(cmd *cobra.Command, _ []string) error {
				return clustercheck.Serve(cmd.Context(), os.Getenv("POD"))
			},
		},
		{
			Use: "try JSON", Short: "Try once, in a pod of twill check cluster", Hidden: true, Args: cobra.ExactArgs(1),
			Long: `Try from this network until it is as it should be, and print how it went, as JSON: what
"twill check cluster" asks its pods to do. Times are in nanoseconds.

Exit code: 0 tried, and what came of it is printed, 2 usage.`,
			Example: `  twill check try '{"to": "tcp://192.0.2.7:8080", "within": 5000000000}'`,
			RunE: func(cmd *cobra.Command, args []string) error {
				var try clustercheck.Try
				if err := json.Unmarshal([]byte(args[0]), &try); err != nil {
					return console.Usage("check try: %v", err)
				}
				return json.NewEncoder(c.Out).Encode(try.Do(cmd.Context()))
			},
		},
	}
}
