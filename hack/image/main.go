// Command image packs a static twill into an OCI archive (package image).
//
// In: -binary, -arch, -version. Out: the archive at -o. Equal input makes equal
// bytes: times are those of SOURCE_DATE_EPOCH, or 0.
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/twillnet/twill/internal/image"
)

func main() {
	out := flag.String("o", "bin/twill-image.tar", "where to write the archive")
	binary := flag.String("binary", "bin/twill", "static binary of twill; the image also gets twill-cni, from the same directory")
	arch := flag.String("arch", "amd64", "architecture of the binary, as Go calls it")
	version := flag.String("version", "dev", "version, and tag of the image")
	flag.Parse()
	epoch, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	var archive []byte
	c, err := image.Twill(*binary, *arch, *version, time.Unix(epoch, 0).UTC())
	if err == nil {
		archive, err = c.Archive()
	}
	if err == nil {
		err = os.WriteFile(*out, archive, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d MB; load it with: podman load -i %[1]s\n", *out, len(archive)>>20)
}
