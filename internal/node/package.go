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

// overPackage is what is left to do where a package has brought the files: to note how the host was found, to give the environment file the
// lines that were asked for, and to take away the files of an Install without a package, of which units would win over the package's.
func (i Install) overPackage(rec *record, exe string) error {
	ours, err := os.Stat(exe)
	if err != nil {
		return err
	}
	theirs, err := os.Stat(i.Root + packageBinary)
	if err != nil || !os.SameFile(ours, theirs) {
		return fmt.Errorf("the package %s is installed on this host: upgrade it by your package manager, and say `%s node install` to change how it runs; or remove it first", packageName, packageBinary)
	}
	if len(i.Env) > 0 {
		if err := i.put(rec, i.environment()); err != nil {
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
	rec.Files = nil // what is left of them are settings, which are the package's now
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
	Config  bool // it is the user's once it is there, and stays on an upgrade
}

// PackageFiles are the units and the examples of settings that a package has, besides the binary, which is to be /usr/bin/twill.
func PackageFiles() []PackageFile {
	texts := unitTexts(packageBinary, "# Of the package "+packageName+".")
	return []PackageFile{
		{Path: packageUnits + bootUnit, Content: []byte(texts[bootUnit]), Mode: 0o644},
		{Path: packageUnits + nodeUnit, Content: []byte(texts[nodeUnit]), Mode: 0o644},
		{Path: envFile, Content: []byte(envText(nil)), Mode: 0o600, Config: true},
		{Path: configFile, Content: []byte(configText), Mode: 0o644, Config: true},
	}
}

// PackageScripts are what a package manager runs, dpkg (deb-postinst(5), deb-prerm(5), deb-postrm(5)) or RPM: after it has put the files in place,
// before it removes them, and after that.
//
// dpkg starts the node, as its users expect, unless policy-rc.d forbids it; with RPM it is started by `twill node install`. On an upgrade
// the daemons restart if they ran. Where systemd does not run, as when an image is made, the units are enabled for the first boot.
func PackageScripts() (installed, remove, removed string) {
	names := strings.NewReplacer("NODE_UNIT", nodeUnit, "BOOT_UNIT", bootUnit, "SERVICE", strings.TrimSuffix(nodeUnit, ".service"), "JOURNAL", journal, "OLD_UNITS", units, "BINARY", packageBinary,
		"STATE", stateDir, "KEPT", strings.Join(kept, " "), "CONF", confDir)
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
	rmdir --ignore-fail-on-non-empty STATE CONF 2>/dev/null || :
fi
`
