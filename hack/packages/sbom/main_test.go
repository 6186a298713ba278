package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"

	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdxlib"
)

// TestTheDocumentHasEachModule of a binary, which is this test's own, and is one that SPDX's tools read.
func TestTheDocumentHasEachModule(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("SOURCE_DATE_EPOCH", "1764300000")
	out := filepath.Join(t.TempDir(), "sbom.json")
	if err := run(self, "v1.2.3", out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	doc, err := spdxjson.Read(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if err := spdxlib.ValidateDocument(doc); err != nil {
		t.Error(err)
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		t.Fatal("this test was built without modules")
	}
	want := []string{"pkg:github/twillnet/twill@v1.2.3", "pkg:golang/stdlib@" + info.GoVersion[len("go"):]}
	for _, m := range info.Deps {
		want = append(want, "pkg:golang/"+m.Path+"@"+m.Version)
	}
	var got []string
	for _, p := range doc.Packages {
		got = append(got, p.PackageExternalReferences[0].Locator)
	}
	if len(want) < 4 || !slices.Equal(got, want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	var raw struct {
		CreationInfo struct{ Created string }
		Packages     []struct {
			Checksums []struct{ ChecksumValue string }
		}
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		t.Fatal(err)
	}
	if raw.CreationInfo.Created != "2025-11-28T03:20:00Z" || len(raw.Packages[0].Checksums) != 1 || len(raw.Packages[0].Checksums[0].ChecksumValue) != 64 {
		t.Errorf("created %q, sums of the binary %v", raw.CreationInfo.Created, raw.Packages[0].Checksums)
	}
}
