// Command twill-cni is the CNI plugin by itself: what cmd/twill does when a runtime calls it, without the daemons that make
// that binary slow to start. `make build` writes it to twill's directory, and `twill cni install` prefers it.
package main

import (
	"os"

	"github.com/twillnet/twill/internal/cni"
)

// version is set by the build.
var version = "dev"

func main() { os.Exit(cni.Main(os.Args[0], version)) }
