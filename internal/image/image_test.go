package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// unpack reads a tar archive; a symbolic link is an arrow to where it leads.
func unpack(t *testing.T, b []byte) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for r := tar.NewReader(bytes.NewReader(b)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if out[h.Name], err = io.ReadAll(r); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeSymlink {
			out[h.Name] = []byte("-> " + h.Linkname)
		}
	}
}

func read[T any](t *testing.T, b []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func TestTheArchiveIsAnImageByTheSpecification(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "twill")
	if err := os.WriteFile(binary, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(binary), "twill-cni"), []byte("plugin"), 0o755); err != nil {
		t.Fatal(err)
	}
	in, err := Twill(binary, "arm64", "v1", time.Unix(7, 0).UTC())
	if err != nil {
		t.Fatal(err)
	}
	archive, err := in.Archive()
	if err != nil {
		t.Fatal(err)
	}
	if again, err := in.Archive(); err != nil || !bytes.Equal(archive, again) {
		t.Errorf("equal input makes other bytes (%v)", err)
	}
	files := unpack(t, archive)
	if got := string(files["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout is %s", got)
	}
	blob := func(d descriptor) []byte {
		t.Helper()
		b, ok := files["blobs/sha256/"+strings.TrimPrefix(d.Digest, "sha256:")]
		if !ok || len(b) != d.Size || digest(b) != d.Digest {
			t.Fatalf("blob %s: there: %v, %d bytes of %d, digest %s", d.Digest, ok, len(b), d.Size, digest(b))
		}
		return b
	}
	index := read[struct{ Manifests []descriptor }](t, files["index.json"])
	manifest := read[struct {
		Config descriptor
		Layers []descriptor
	}](t, blob(index.Manifests[0]))
	config := read[struct {
		Architecture string
		Config       struct{ Entrypoint []string }
		Rootfs       struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}](t, blob(manifest.Config))
	if config.Architecture != "arm64" || config.Config.Entrypoint[0] != "/usr/bin/twill" || len(manifest.Layers) != 1 {
		t.Errorf("configuration %+v, layers %v", config, manifest.Layers)
	}
	z, err := gzip.NewReader(bytes.NewReader(blob(manifest.Layers[0])))
	if err != nil {
		t.Fatal(err)
	}
	layer, err := io.ReadAll(z)
	if err != nil {
		t.Fatal(err)
	}
	if digest(layer) != config.Rootfs.DiffIDs[0] {
		t.Errorf("the layer is %s, the configuration says %v", digest(layer), config.Rootfs.DiffIDs)
	}
	for name, want := range map[string]string{
		"usr/bin/twill": "program", "usr/bin/twill-cni": "plugin",
		"bin/calico-node": "-> ../usr/bin/twill", "usr/bin/calico-node": "-> twill", "usr/bin/calicoctl": "-> twill", // as probes and scripts call it
	} {
		if got := string(unpack(t, layer)[name]); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
}
