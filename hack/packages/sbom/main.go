// Command sbom says what a Go binary is made of, in SPDX 2.3's JSON (https://spdx.github.io/spdx-spec/v2.3/).
//
//	sbom -binary FILE -version VERSION [-o FILE]
//
// In: a binary, in which Go notes its modules (runtime/debug.BuildInfo). Out: a document with the binary, each of its modules and Go's own
// library; equal binaries give equal documents. What licenses modules have it does not say.
package main

import (
	"cmp"
	"crypto/sha256"
	"debug/buildinfo"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const homepage = "https://github.com/twillnet/twill"

func main() {
	binary := flag.String("binary", "bin/twill", "the binary to read")
	version := flag.String("version", "dev", "its version")
	out := flag.String("o", "", "where to write; default: standard output")
	flag.Parse()
	if err := run(*binary, *version, *out); err != nil {
		fmt.Fprintln(os.Stderr, "sbom:", err)
		os.Exit(1)
	}
}

func run(binary, version, out string) (err error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	epoch, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	doc := document(filepath.Base(binary), version, fmt.Sprintf("%x", sha256.Sum256(content)), info, time.Unix(epoch, 0).UTC())
	var to io.Writer = os.Stdout
	if out != "" {
		f, err := os.Create(out)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		to = f
	}
	return json.Write(doc, to, json.Indent("  "))
}

var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]`)

// document describes a binary of a name, with the SHA-256 sum of its content.
func document(name, version, sum string, info *debug.BuildInfo, when time.Time) *v2_3.Document {
	const unknown = "NOASSERTION"
	item := func(kind, name, version, purl string) *v2_3.Package {
		return &v2_3.Package{
			PackageName: name, PackageVersion: version, PackageSPDXIdentifier: common.ElementID(notInID.ReplaceAllString(kind+"-"+name, "-")),
			PackageDownloadLocation: unknown, PackageLicenseConcluded: unknown, PackageLicenseDeclared: unknown, PackageCopyrightText: unknown,
			PackageExternalReferences: []*v2_3.PackageExternalReference{{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl}},
		}
	}
	self := item("Binary", name, version, "pkg:github/twillnet/twill@"+version)
	self.PackageDownloadLocation, self.PackageLicenseDeclared = homepage, "Apache-2.0"
	self.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: sum}}
	doc := &v2_3.Document{
		SPDXVersion: spdx.Version, DataLicense: spdx.DataLicense, SPDXIdentifier: "DOCUMENT", DocumentName: name + "-" + version,
		DocumentNamespace: homepage + "/spdx/" + name + "-" + sum,
		CreationInfo:      &v2_3.CreationInfo{Created: when.Format(time.RFC3339), Creators: []common.Creator{{CreatorType: "Tool", Creator: "twill-sbom"}}},
		Packages:          []*v2_3.Package{self},
		Relationships:     []*v2_3.Relationship{{RefA: common.MakeDocElementID("", "DOCUMENT"), RefB: common.MakeDocElementID("", string(self.PackageSPDXIdentifier)), Relationship: common.TypeRelationshipDescribe}},
	}
	depends := func(p *v2_3.Package) {
		doc.Packages = append(doc.Packages, p)
		doc.Relationships = append(doc.Relationships, &v2_3.Relationship{
			RefA: common.MakeDocElementID("", string(self.PackageSPDXIdentifier)), RefB: common.MakeDocElementID("", string(p.PackageSPDXIdentifier)),
			Relationship: common.TypeRelationshipDependsOn,
		})
	}
	goVersion := strings.TrimPrefix(info.GoVersion, "go")
	depends(item("Go", "stdlib", goVersion, "pkg:golang/stdlib@"+goVersion))
	for _, m := range info.Deps {
		m = cmp.Or(m.Replace, m)
		depends(item("Module", m.Path, m.Version, "pkg:golang/"+m.Path+"@"+m.Version))
	}
	return doc
}
