// Command image packs a static binary into an OCI archive, which any container
// engine loads: one layer with the binary, the CA certificates of this machine
// and the directories that it wants. No engine and no registry is needed.
//
// In: -binary, -arch, -version. Out: the archive at -o. Equal input makes equal
// bytes: times are those of SOURCE_DATE_EPOCH, or 0.
//
// Format: OCI image specification 1.1, image-layout.md, manifest.md, config.md.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"time"
)

const authorities = "/etc/ssl/certs/ca-certificates.crt"

func main() {
	in := input{}
	out := flag.String("o", "bin/twill-image.tar", "where to write the archive")
	flag.StringVar(&in.binary, "binary", "bin/twill", "static binary")
	flag.StringVar(&in.arch, "arch", "amd64", "architecture of the binary, as Go calls it")
	flag.StringVar(&in.version, "version", "dev", "version, and tag of the image")
	flag.Parse()
	epoch, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	in.time = time.Unix(epoch, 0).UTC()
	archive, err := in.image()
	if err == nil {
		err = os.WriteFile(*out, archive, 0o644)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: %d MB; load it with: podman load -i %[1]s\n", *out, len(archive)>>20)
}

type input struct {
	binary, arch, version string
	time                  time.Time
}

// descriptor names a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

// entry is one file of a tar archive; a name that ends in a slash is a directory.
type entry struct {
	name    string
	mode    fs.FileMode
	content []byte
}

func (in input) tar(entries []entry) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Mode: int64(e.mode), Size: int64(len(e.content)), ModTime: in.time, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if e.name[len(e.name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// image is the whole archive.
func (in input) image() ([]byte, error) {
	layer, err := in.layer()
	if err != nil {
		return nil, err
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is a valid one
	if _, err := z.Write(layer); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	created := in.time.Format(time.RFC3339)
	config, err := json.Marshal(map[string]any{
		"created": created, "architecture": in.arch, "os": "linux",
		"config": map[string]any{
			"Entrypoint": []string{"/usr/bin/twill"}, "Cmd": []string{"node"}, "Env": []string{"PATH=/usr/bin"}, "WorkingDir": "/",
			"Labels": map[string]string{"org.opencontainers.image.title": "twill", "org.opencontainers.image.version": in.version, "org.opencontainers.image.licenses": "Apache-2.0"},
		},
		"rootfs":  map[string]any{"type": "layers", "diff_ids": []string{digest(layer)}},
		"history": []map[string]string{{"created": created, "created_by": "make image"}},
	})
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": descriptor{MediaType: "application/vnd.oci.image.config.v1+json", Digest: digest(config), Size: len(config)},
		"layers": []descriptor{{MediaType: "application/vnd.oci.image.layer.v1.tar+gzip", Digest: digest(packed.Bytes()), Size: packed.Len()}},
	})
	if err != nil {
		return nil, err
	}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
		"manifests": []descriptor{{
			MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: digest(manifest), Size: len(manifest),
			Annotations: map[string]string{"org.opencontainers.image.ref.name": "twill:" + in.version, "io.containerd.image.name": "localhost/twill:" + in.version},
			Platform:    map[string]string{"architecture": in.arch, "os": "linux"},
		}},
	})
	if err != nil {
		return nil, err
	}
	blob := func(b []byte) entry {
		return entry{"blobs/sha256/" + digest(b)[len("sha256:"):], 0o644, b}
	}
	return in.tar([]entry{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"blobs/", 0o755, nil},
		{"blobs/sha256/", 0o755, nil},
		blob(config), blob(manifest), blob(packed.Bytes()),
		{"index.json", 0o644, index},
	})
}

// layer is the root of the container's file system.
func (in input) layer() ([]byte, error) {
	program, err := os.ReadFile(in.binary)
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{"etc/", 0o755, nil},
		{"etc/ssl/", 0o755, nil},
		{"etc/ssl/certs/", 0o755, nil},
		{"etc/twill/", 0o755, nil},
		{"run/", 0o755, nil},
		{"tmp/", 0o1777, nil},
		{"usr/", 0o755, nil},
		{"usr/bin/", 0o755, nil},
		{"usr/bin/twill", 0o755, program},
		{"var/", 0o755, nil},
		{"var/lib/", 0o755, nil},
		{"var/lib/twill/", 0o700, nil},
	}
	if pem, err := os.ReadFile(authorities); err == nil {
		entries = append(entries, entry{authorities[1:], 0o644, pem})
	}
	return in.tar(entries)
}
