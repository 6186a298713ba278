package main

import (
	"context"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// initPath is the first process in the machine.
const initPath = "/usr/lib/vm/init"

// initScript takes the place of init: it mounts what an init does, unpacks the second disk, and runs check of it. Status and output go to the
// second serial port. The kernel has no way to end QEMU with a status.
const initScript = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
mount -t devtmpfs dev /dev
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mkdir -p /dev/pts && mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /tmp
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up
stty -F /dev/ttyS1 -opost 2>/dev/null
exec </dev/null >/dev/ttyS1 2>&1
mkdir -p /host && tar -xf /dev/nvme1n1 -C /host && cd /host
{ sh ./check 2>&1; echo "vm: exit $?"; } | cat # not a terminal
sync
sleep 0.2
echo b >/proc/sysrq-trigger
`

// unitPath is the unit that runs a check under systemd, when all else has been started: a target of its own wants it, and the kernel is given that.
const (
	unitPath   = "/usr/lib/systemd/system/vm-check.service"
	targetPath = "/usr/lib/systemd/system/vm-check.target"
)

const unit = `[Unit]
Description=What this machine was booted for
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/usr/lib/vm/check
TimeoutStartSec=infinity
`

const target = `[Unit]
Description=A check of this machine
Requires=multi-user.target
After=multi-user.target
Wants=vm-check.service
AllowIsolate=yes
`

// checkScript is run by that unit. A check that ends with 64 asks for a reboot, after which it is run once more, with one more in its first argument.
const checkScript = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
stty -F /dev/ttyS1 -opost 2>/dev/null
exec </dev/null >/dev/ttyS1 2>&1
stage=$(cat /vm-stage 2>/dev/null || echo 0)
[ "$stage" != 0 ] || { mkdir /host && tar -xf /dev/nvme1n1 -C /host; }
cd /host
{ sh ./check "$stage" 2>&1; echo $? >/vm-status; } | cat # not a terminal
status=$(cat /vm-status)
if [ "$status" = 64 ]; then
	echo $((stage + 1)) >/vm-stage
	echo "vm: reboot"
	exec systemctl reboot 2>/dev/null # there is no bus, of which it would complain
fi
echo "vm: exit $status"
sync
sleep 0.2
echo b >/proc/sysrq-trigger # which ends QEMU
`

// packages are those in the machine, without the essential ones, which are always there.
const packages = "iproute2,iputils-ping,kmod,mount,nftables,procps,systemd,systemd-sysv"

// buildScript makes kernel and root.img in the folder where it runs. The kernel's package is unpacked, not installed: it would want an initramfs, which
// is not needed with an NVMe disk and ext4, which it has built in.
const buildScript = `set -eu
export TMPDIR="$PWD"
kernel=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: \(linux-image-6.*\)/\1/p')
apt-get download -qq -o APT::Sandbox::User=root "$kernel"
mkdir kernel.d root
dpkg-deb -x "$kernel"_*.deb kernel.d
mmdebstrap --quiet --mode=root --variant=essential --dpkgopt=force-unsafe-io \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
	--include="$PACKAGES" bookworm root "$SOURCES"
version=$(ls kernel.d/lib/modules)
mkdir -p root/usr/lib/modules root/usr/lib/vm
cp -a "kernel.d/lib/modules/$version" root/usr/lib/modules/
chroot root depmod "$version"
printf '%s' "$INIT" >root/usr/lib/vm/init
printf '%s' "$CHECK" >root/usr/lib/vm/check
chmod 755 root/usr/lib/vm/init root/usr/lib/vm/check
printf '%s' "$UNIT" >root$UNIT_PATH
printf '%s' "$TARGET" >root$TARGET_PATH
ln -s /dev/null root/etc/systemd/system/serial-getty@ttyS0.service
rm -rf root/var/cache/apt root/var/lib/apt/lists
mke2fs -q -F -t ext4 -O ^has_journal -d root root.img 700M
cp kernel.d/boot/vmlinuz-* vmlinuz
rm -rf root kernel.d ./*.deb
`

// image is a machine's kernel and disk.
type image struct{ kernel, root string }

// find returns the image, and makes it if it is not there. Another recipe is another image; older ones are removed.
func find(ctx context.Context) (image, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return image{}, err
	}
	base := filepath.Join(cache, "twill-vm")
	dir := filepath.Join(base, fmt.Sprintf("%x", sha256.Sum256([]byte(buildScript+initScript+checkScript+unit+target+packages)))[:16])
	img := image{filepath.Join(dir, "vmlinuz"), filepath.Join(dir, "root.img")}
	if _, err := os.Stat(img.root); err == nil {
		return img, nil
	}
	fmt.Fprintln(os.Stderr, "vm: making the image from Debian's packages")
	if err := os.RemoveAll(base); err != nil {
		return image{}, err
	}
	if err := os.MkdirAll(base, 0o755); err != nil {
		return image{}, err
	}
	work, err := os.MkdirTemp(base, "making-")
	if err != nil {
		return image{}, err
	}
	defer os.RemoveAll(work)
	cmd := exec.CommandContext(ctx, "sh", "-c", buildScript)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, os.Stderr, os.Stderr
	cmd.Env = append(os.Environ(), "PACKAGES="+packages, "INIT="+initScript, "CHECK="+checkScript, "UNIT="+unit, "UNIT_PATH="+unitPath,
		"TARGET="+target, "TARGET_PATH="+targetPath, "SOURCES="+sources())
	if err := cmd.Run(); err != nil {
		return image{}, fmt.Errorf("make the image: %w", err)
	}
	return img, os.Rename(work, dir)
}

// sources is this machine's own list of Debian's mirrors.
func sources() string {
	for _, f := range []string{"/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"} {
		if _, err := os.Stat(f); err == nil {
			return f
		}
	}
	return strings.Join([]string{"deb", "http://deb.debian.org/debian", "bookworm", "main"}, " ")
}
