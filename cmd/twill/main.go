// Command twill is the one binary: daemons, plugins and the command line.
package main

import (
	"context"
	"os"

	"github.com/twillnet/twill/internal/cni"
	"github.com/twillnet/twill/internal/ctl"
)

func main() {
	if cni.Called(os.Args[0]) {
		os.Exit(cni.Main(os.Args[0], ctl.Version))
	}
	os.Exit(ctl.Run(context.Background(), os.Args[1:], ctl.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
