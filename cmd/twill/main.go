// Command twill is the one binary: daemons, plugins and the command line.
package main

import (
	"context"
	"os"

	"github.com/twillnet/twill/internal/ctl"
)

func main() {
	os.Exit(ctl.Run(context.Background(), os.Args[1:], ctl.Stdio{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}))
}
