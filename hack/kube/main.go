// Command kube builds Kubernetes' API server, its controllers and kubectl for tests, if they are not built yet (package binaries),
// and prints the folder that they are in; with -nodes what else a cluster runs, too, and with -e2e upstream's tests on one.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/twillnet/twill/internal/kubetest/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	nodes := flag.Bool("nodes", false, "also what nodes run, and the scheduler")
	e2e := flag.Bool("e2e", false, "also Kubernetes' own tests of NetworkPolicies, and the program that their pods run")
	flag.Parse()
	groups := []binaries.Group{binaries.API}
	if *nodes {
		groups = append(groups, binaries.Nodes)
	}
	if *e2e {
		groups = append(groups, binaries.E2E)
	}
	for _, g := range groups {
		set, err := g.Find()
		if err == nil {
			err = set.Build(ctx, os.Stderr)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "kube:", err)
			os.Exit(1) //nolint:gocritic // the context ends with the process
		}
		fmt.Println(set.Dir)
	}
}
