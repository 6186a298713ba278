// Command kube builds Kubernetes' API server, its controllers and kubectl for tests, if they are not built yet (package binaries),
// and prints the folder that they are in.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"github.com/twillnet/twill/internal/kubetest/binaries"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	set, err := binaries.Find()
	if err == nil {
		err = set.Build(ctx, os.Stderr)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "kube:", err)
		os.Exit(1) //nolint:gocritic // the context ends with the process
	}
	fmt.Println(set.Dir)
}
