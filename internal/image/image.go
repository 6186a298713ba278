// Package image packs static binaries into OCI archives, which any container engine loads. No engine and no registry is needed.
//
// In: a [Config] with the files of one layer. Out: the archive. Equal input makes equal bytes.
//
// Format: OCI image specification 1.1, image-layout.md, manifest.md, config.md.
package image

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const authorities = "/etc/ssl/certs/ca-certificates.crt"

// Config says what is in an image.
type Config struct {
	Registry      string // where others would pull it from; empty: localhost
	Name, Version string // its name and tag
	Arch          string // as Go calls it
	Time          time.Time
	Entrypoint    []string
	Cmd           []string
	Files         []File
	Plain         bool // the layer is not compressed: larger, and made and unpacked in no time
}

// Reference is the name under which containerd has the image once it is imported.
func (c Config) Reference() string {
	return cmp.Or(c.Registry, "localhost") + "/" + c.Name + ":" + c.Version
}

// Twill is the image of a binary: with the directories that it wants, the CA certificates of this machine, and twill-cni and cni, a
// directory of other plugins, if these are beside it.
func Twill(binary, arch, version string, at time.Time) (Config, error) {
	program, err := os.ReadFile(binary)
	if err != nil {
		return Config{}, err
	}
	files := []File{
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
	if plugin, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "twill-cni")); err == nil {
		files = append(files, File{"usr/bin/twill-cni", 0o755, plugin})
	}
	others, err := os.ReadDir(filepath.Join(filepath.Dir(binary), "cni"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return Config{}, err
	}
	if len(others) > 0 {
		files = append(files, File{"usr/bin/cni/", 0o755, nil})
	}
	for _, o := range others {
		plugin, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "cni", o.Name()))
		if err != nil {
			return Config{}, err
		}
		files = append(files, File{"usr/bin/cni/" + o.Name(), 0o755, plugin})
	}
	files = append(files, File{"bin/", 0o755, nil}, link("bin/calico-node", "../usr/bin/twill"))
	for _, name := range upstreamNames {
		files = append(files, link("usr/bin/"+name, "twill"))
	}
	if pem, err := os.ReadFile(authorities); err == nil {
		files = append(files, File{authorities[1:], 0o644, pem})
	}
	return Config{Name: "twill", Version: version, Arch: arch, Time: at, Entrypoint: []string{"/usr/bin/twill"}, Cmd: []string{"node"}, Files: files}, nil
}

// upstreamNames are those under which the binary is what upstream's manifests, probes and scripts call.
var upstreamNames = []string{"calico-node", "calico-felix", "calico-typha", "kube-controllers", "calicoctl"}

// link is a symbolic link.
func link(name, target string) File { return File{name, 0o777 | fs.ModeSymlink, []byte(target)} }

// descriptor names a blob.
type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Annotations map[string]string `json:"annotations,omitempty"`
	Platform    map[string]string `json:"platform,omitempty"`
}

// File is one file of a file system; a name that ends in a slash is a directory, which stands before what is in it. The content of a
// symbolic link is where it leads.
type File struct {
	Name    string // without a slash at its beginning
	Mode    fs.FileMode
	Content []byte
}

func (c Config) tar(entries []File) ([]byte, error) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := &tar.Header{Name: e.Name, Mode: int64(e.Mode &^ fs.ModeType), Size: int64(len(e.Content)), ModTime: c.Time, Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if e.Name[len(e.Name)-1] == '/' {
			h.Typeflag = tar.TypeDir
		}
		if e.Mode&fs.ModeSymlink != 0 {
			h.Typeflag, h.Linkname, h.Size, e.Content = tar.TypeSymlink, string(e.Content), 0, nil
		}
		if err := w.WriteHeader(h); err != nil {
			return nil, err
		}
		if _, err := w.Write(e.Content); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func digest(b []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(b)) }

// Archive is the whole archive, in memory.
func (c Config) Archive() ([]byte, error) {
	layer, err := c.tar(c.Files)
	if err != nil {
		return nil, err
	}
	packed, kind, err := c.pack(layer)
	if err != nil {
		return nil, err
	}
	created := c.Time.Format(time.RFC3339)
	config, err := json.Marshal(map[string]any{
		"created": created, "architecture": c.Arch, "os": "linux",
		"config": map[string]any{
			"Entrypoint": c.Entrypoint, "Cmd": c.Cmd, "Env": []string{"PATH=/usr/bin"}, "WorkingDir": "/",
			"Labels": map[string]string{"org.opencontainers.image.title": c.Name, "org.opencontainers.image.version": c.Version, "org.opencontainers.image.licenses": "Apache-2.0"},
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
		"layers": []descriptor{{MediaType: kind, Digest: digest(packed), Size: len(packed)}},
	})
	if err != nil {
		return nil, err
	}
	index, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.index.v1+json",
		"manifests": []descriptor{{
			MediaType: "application/vnd.oci.image.manifest.v1+json", Digest: digest(manifest), Size: len(manifest),
			Annotations: map[string]string{"org.opencontainers.image.ref.name": c.Name + ":" + c.Version, "io.containerd.image.name": c.Reference()},
			Platform:    map[string]string{"architecture": c.Arch, "os": "linux"},
		}},
	})
	if err != nil {
		return nil, err
	}
	blob := func(b []byte) File {
		return File{"blobs/sha256/" + digest(b)[len("sha256:"):], 0o644, b}
	}
	return c.tar([]File{
		{"oci-layout", 0o644, []byte(`{"imageLayoutVersion":"1.0.0"}`)},
		{"blobs/", 0o755, nil},
		{"blobs/sha256/", 0o755, nil},
		blob(config), blob(manifest), blob(packed),
		{"index.json", 0o644, index},
	})
}

// pack is a layer as it is stored, and its media type.
func (c Config) pack(layer []byte) ([]byte, string, error) {
	const kind = "application/vnd.oci.image.layer.v1.tar"
	if c.Plain {
		return layer, kind, nil
	}
	var packed bytes.Buffer
	z, _ := gzip.NewWriterLevel(&packed, gzip.BestCompression) // the level is a valid one
	if _, err := z.Write(layer); err != nil {
		return nil, "", err
	}
	err := z.Close()
	return packed.Bytes(), kind + "+gzip", err
}
