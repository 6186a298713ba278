// Command packages makes a .deb and a .rpm of Twill.
//
//	packages -tree DIRECTORY -binaries DIRECTORY -arch ARCH -version VERSION -o DIRECTORY
//
// In: the directory that `twill node package` wrote, one with the binaries twill and twill-cni for that architecture, in Go's words, and a version,
// as `git describe` prints it. Out: the two files. Equal input makes equal bytes: times are those of SOURCE_DATE_EPOCH, or 0.
package main

import (
	"bytes"
	"compress/gzip"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the two forms register themselves
	"github.com/goreleaser/nfpm/v2/files"
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

const homepage = "https://github.com/twillnet/twill"

const description = `routed networking and network policy for containers, machines and hosts
Twill routes between workloads, without overlays where the network allows
it, and enforces network policy on each host, in the kernel: for containers
(CNI, Kubernetes, Docker), virtual machines (OpenStack) and hosts themselves.
It speaks BGP, VXLAN, IPIP and WireGuard, reads resources of
projectcalico.org/v3, and says which rule dropped a packet.`

func main() {
	var b build
	flag.StringVar(&b.tree, "tree", "bin/package", "what `twill node package` wrote")
	flag.StringVar(&b.binaries, "binaries", "bin", "where twill and twill-cni are")
	flag.StringVar(&b.arch, "arch", "amd64", "architecture of the binaries, as Go calls it")
	flag.StringVar(&b.version, "version", "dev", "version, as git describe prints it")
	flag.StringVar(&b.maintainer, "maintainer", "Twill maintainers <maintainers@twill.example>", "who answers for the packages, with an address")
	flag.StringVar(&b.out, "o", "bin", "where to write the packages")
	flag.Parse()
	epoch, _ := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64)
	b.when = time.Unix(epoch, 0).UTC()
	made, err := b.packages()
	if err != nil {
		fmt.Fprintln(os.Stderr, "packages:", err)
		os.Exit(1)
	}
	for _, path := range made {
		fmt.Println(path)
	}
}

type build struct {
	tree, binaries, arch, version, maintainer, out string
	when                                           time.Time
}

// packages makes both, and returns their paths.
func (b build) packages() (made []string, err error) {
	work, err := os.MkdirTemp("", "twill-packages-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(work)
	contents, err := b.contents(work)
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.out, 0o755); err != nil {
		return nil, err
	}
	for _, form := range []string{"deb", "rpm"} {
		info := &nfpm.Info{
			Name: "twill", Arch: b.arch, Platform: "linux", Version: version(b.version, b.when), VersionSchema: "none",
			Section: "net", Priority: "optional", Maintainer: b.maintainer, Vendor: "Twill", Homepage: homepage,
			Description: description, DisableGlobbing: true, MTime: b.when,
			Overridables: nfpm.Overridables{
				Contents: contents,
				Scripts:  nfpm.Scripts{PostInstall: filepath.Join(b.tree, "postinst"), PreRemove: filepath.Join(b.tree, "prerm"), PostRemove: filepath.Join(b.tree, "postrm")},
				Suggests: []string{"bird2", "iptables", "ipset"},
				RPM:      nfpm.RPM{BuildHost: "localhost", Group: "System Environment/Daemons", Summary: strings.SplitN(description, "\n", 2)[0], Compression: "zstd"},
				Deb:      nfpm.Deb{Compression: "xz"},
			},
		}
		if form == "rpm" {
			info.Release, info.License, info.Suggests = "1", "Apache-2.0", []string{"bird", "iptables", "ipset"}
		}
		info = nfpm.WithDefaults(info)
		packager, err := nfpm.Get(form)
		if err != nil {
			return nil, err
		}
		var file bytes.Buffer
		if err := packager.Package(info, &file); err != nil {
			return nil, fmt.Errorf("%s: %w", form, err)
		}
		path := filepath.Join(b.out, packager.ConventionalFileName(info))
		if err := os.WriteFile(path, file.Bytes(), 0o644); err != nil {
			return nil, err
		}
		made = append(made, path)
	}
	return made, nil
}

// contents are the files of both packages. What has to be made first, compressed pages of the manual and the like, is put into work.
func (b build) contents(work string) (out files.Contents, err error) {
	add := func(source, path string, mode fs.FileMode) {
		out = append(out, &files.Content{Source: source, Destination: path, FileInfo: &files.ContentFileInfo{Owner: "root", Group: "root", Mode: mode, MTime: b.when}})
	}
	for _, name := range []string{"twill", "twill-cni"} {
		add(filepath.Join(b.binaries, name), "/usr/bin/"+name, 0o755)
	}
	root := filepath.Join(b.tree, "root")
	err = filepath.WalkDir(root, func(source string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		path := strings.TrimPrefix(source, root)
		if strings.HasPrefix(path, "/usr/share/man/") {
			path += ".gz"
			text, err := os.ReadFile(source)
			if err != nil {
				return err
			}
			source = filepath.Join(work, filepath.Base(path))
			if err := compressed(source, text); err != nil {
				return err
			}
		}
		add(source, path, info.Mode().Perm())
		return nil
	})
	if err != nil {
		return nil, err
	}
	// Where Debian's policy wants them; RPM has them as well.
	log := fmt.Sprintf("twill (%s) unstable; urgency=medium\n\n  * What is new: %s/blob/main/CHANGELOG.md\n\n -- %s  %s\n",
		version(b.version, b.when), homepage, b.maintainer, b.when.Format(time.RFC1123Z))
	overrides := strings.Join(lintian, "\n") + "\n"
	if err := compressed(filepath.Join(work, "changelog.gz"), []byte(log)); err != nil {
		return nil, err
	}
	for path, text := range map[string]string{"copyright": copyright, "overrides": overrides} {
		if err := os.WriteFile(filepath.Join(work, path), []byte(text), 0o644); err != nil {
			return nil, err
		}
	}
	add(filepath.Join(work, "changelog.gz"), "/usr/share/doc/twill/changelog.gz", 0o644)
	add(filepath.Join(work, "copyright"), "/usr/share/doc/twill/copyright", 0o644)
	add(filepath.Join(work, "overrides"), "/usr/share/lintian/overrides/twill", 0o644)
	return out, nil
}

// copyright is Debian's machine-readable form (DEP 5).
const copyright = `Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: Twill
Source: ` + homepage + `

Files: *
Copyright: 2026 the Twill authors
License: Apache-2.0
 On Debian systems, the full text of this license is in
 /usr/share/common-licenses/Apache-2.0.
Comment:
 The binaries hold modules under licenses of their own: go version -m /usr/bin/twill
 lists them.
`

// lintian are overrides of its checks, each for a reason.
var lintian = []string{
	"# Go's binaries are static: one file runs on any distribution.",
	"twill: statically-linked-binary",
	"# A host may have another twill in /usr/local/bin, from before the package, which must not be run in the package's place.",
	"twill: command-with-path-in-maintainer-script *",
	"# The node's own units, which `twill node install` enables and starts, and which a chroot enables for its first boot.",
	"twill: maintainer-script-calls-systemctl *",
}

func compressed(path string, text []byte) error {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return err
	}
	if _, err := w.Write(text); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return os.WriteFile(path, b.Bytes(), 0o644)
}

var (
	tagged = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)(?:-(\d+)-(g[0-9a-f]+))?(-dirty)?$`)
	before = regexp.MustCompile(`^v?(\d+(?:\.\d+)*)-([a-z]+[.0-9]*)(?:-(\d+)-(g[0-9a-f]+))?(-dirty)?$`)
)

// version is what git describe says, such that dpkg and RPM order it as it was made (deb-version(7)): what comes before a release has a ~, what comes
// after it a +. Without a tag, or with a word for a version, it is a version before all others, which begins with its day.
func version(described string, when time.Time) string {
	rest := func(count, hash, dirty string) string {
		out := ""
		if count != "" {
			out = "+" + count + "." + hash
		}
		if dirty != "" {
			out += "+dirty"
		}
		return out
	}
	if m := tagged.FindStringSubmatch(described); m != nil && (strings.Contains(m[1], ".") || strings.HasPrefix(described, "v")) {
		return m[1] + rest(m[2], m[3], m[4])
	}
	if m := before.FindStringSubmatch(described); m != nil {
		return m[1] + "~" + m[2] + rest(m[3], m[4], m[5])
	}
	word := regexp.MustCompile(`[^A-Za-z0-9.+~]`).ReplaceAllString(described, "+")
	return "0~" + when.Format("20060102") + "." + word
}
