// Command twill is the one binary: daemons, plugins and the command line.
package main

import (
	"context"
	"os"

	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cni"
)

func main() {
	if cni.Called(os.Args[0]) {
		os.Exit(cni.Main(os.Args[0], conn.Version))
	}
	os.Exit(cli.Run(context.Background(), os.Args, cli.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
