package node

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
)

// Where a package of the distribution has its files.
const (
	packageName   = "twill"
	packageBinary = "/usr/bin/twill"
	packageUnits  = "/usr/lib/systemd/system/"
)

// packaged reports whether a package has its files here.
func (i Install) packaged() bool {
	_, err := os.Stat(i.Root + packageUnits + nodeUnit)
	return err == nil
}

// overPackage is what is left to do where a package has brought binary and units: to note how the host was found, to make the examples of settings, and to take
// away the files of an Install without a package, of which units would win over the package's. Settings are no files of the package: Install changes
// them, and dpkg would ask at each upgrade what is to become of them (Debian Policy 10.7.3).
func (i Install) overPackage(rec *record, exe string) error {
	ours, err := os.Stat(exe)
	if err != nil {
		return err
	}
	theirs, err := os.Stat(i.Root + packageBinary)
	if err != nil || !os.SameFile(ours, theirs) {
		return fmt.Errorf("the package %s is installed on this host: upgrade it by your package manager, and say `%s node install` to change how it runs; or remove it first", packageName, packageBinary)
	}
	for _, f := range i.settings() {
		if err := i.put(rec, f); err != nil {
			return err
		}
	}
	for _, f := range []string{binary, units + bootUnit, units + nodeUnit} {
		if !slices.Contains(rec.Files, f) {
			continue
		}
		if err := i.remove(f); err != nil {
			return err
		}
	}
	rec.Files = nil // settings, which stay when the package goes, until it is purged
	if i.DryRun {
		return nil
	}
	return i.write(rec)
}

// PackageFile is a file of a package.
type PackageFile struct {
	Path    string // absolute
	Content []byte
	Mode    fs.FileMode
}

// PackageFiles are the units that a package has in addition to the binary, which is to be /usr/bin/twill.
func PackageFiles() []PackageFile {
	texts := unitTexts(packageBinary, "# Of the package "+packageName+".")
	return []PackageFile{
		{Path: packageUnits + bootUnit, Content: []byte(texts[bootUnit]), Mode: 0o644},
		{Path: packageUnits + nodeUnit, Content: []byte(texts[nodeUnit]), Mode: 0o644},
	}
}

// PackageScripts are what a package manager runs, dpkg (deb-postinst(5), deb-prerm(5), deb-postrm(5)) or RPM: after it has put the files in place,
// before it removes them, and after that.
//
// dpkg starts the node, as its users expect, unless policy-rc.d forbids it; with RPM it is started by `twill node install`. On an upgrade
// the daemons restart if they ran. Where systemd does not run, as when an image is made, the units are enabled for the first boot.
func PackageScripts() (installed, remove, removed string) {
	names := strings.NewReplacer("NODE_UNIT", nodeUnit, "BOOT_UNIT", bootUnit, "SERVICE", strings.TrimSuffix(nodeUnit, ".service"), "JOURNAL", journal, "OLD_UNITS", units, "BINARY", packageBinary,
		"STATE", stateDir, "KEPT", strings.Join(kept, " "), "SETTINGS", EnvFile+" "+configFile, "CONF", confDir)
	return names.Replace(installedScript), names.Replace(removeScript), names.Replace(removedScript)
}

const installedScript = `#!/bin/sh
set -e
case "$1" in configure|1|2) ;; *) exit 0 ;; esac
# 101: the host's administrator wants no package to start what it brings.
forbidden() {
	[ -x /usr/sbin/policy-rc.d ] || return 1
	status=0
	/usr/sbin/policy-rc.d SERVICE start || status=$?
	[ $status = 101 ]
}
if [ ! -d /run/systemd/system ]; then
	# An image is being made: for its first boot.
	[ "$1" != configure ] || systemctl enable BOOT_UNIT NODE_UNIT 2>/dev/null || :
elif [ -e JOURNAL ] && [ ! -e OLD_UNITSNODE_UNIT ]; then
	systemctl daemon-reload
	systemctl try-restart NODE_UNIT
elif [ "$1" = configure ] && ! forbidden; then
	BINARY node install
else
	systemctl daemon-reload || :
	echo "twill: not started yet; start it by: twill node install" >&2
fi
`

const removeScript = `#!/bin/sh
set -e
case "$1" in remove|0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ] || [ -e JOURNAL ]; then
	BINARY node uninstall
fi
`

const removedScript = `#!/bin/sh
set -e
case "$1" in remove|purge|0) ;; *) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload || :
fi
if [ "$1" = purge ]; then
	for name in KEPT; do
		rm -rf "STATE/$name"
	done
	rm -f SETTINGS
	rmdir --ignore-fail-on-non-empty STATE CONF 2>/dev/null || :
fi
`
