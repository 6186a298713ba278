#!/bin/sh
# Makes a directory with Debian's neutron-server and an empty database of SQLite, once, and prints where it is. It is kept in the user's cache
# directory, and nothing that runs from it writes into it. Needs root and debootstrap; some two minutes.
set -eu

cache=${XDG_CACHE_HOME:-$HOME/.cache}/twill-openstack
root=$cache/neutron-1
if [ -d "$root" ]; then
	echo "$root"
	exit
fi
command -v debootstrap >/dev/null || sh "$(dirname "$0")/deps.sh" debootstrap >&2
mkdir -p "$cache"
new=$(mktemp -d "$cache/new.XXXXXX")
trap 'rm -rf "$new"' EXIT
echo "making Debian's neutron-server in $root, once" >&2
# In mounts of its own, so that nothing of them is left, whatever happens.
unshare --mount sh -eu -s "$new" >"$cache/log" 2>&1 <<'IN' || { tail -n 20 "$cache/log" >&2; echo "scripts/openstack.sh: failed; all of it is in $cache/log" >&2; exit 1; }
root=$1
debootstrap --variant=minbase bookworm "$root" http://deb.debian.org/debian
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d" # nothing is started
chmod +x "$root/usr/sbin/policy-rc.d"
cp /etc/resolv.conf "$root/etc/"
for f in /etc/apt/apt.conf.d/*proxy*; do [ ! -e "$f" ] || cp "$f" "$root/etc/apt/apt.conf.d/"; done
mount --bind /dev "$root/dev"
mount -t proc proc "$root/proc"
echo force-unsafe-io >"$root/etc/dpkg/dpkg.cfg.d/unsafe-io" # if the machine fails meanwhile, it is made anew
export DEBIAN_FRONTEND=noninteractive
chroot "$root" apt-get update
chroot "$root" apt-get install -y --no-install-recommends neutron-server
chroot "$root" apt-get clean
rm -rf "$root"/var/lib/apt/lists/*
printf '[DEFAULT]\ncore_plugin = ml2\n[database]\nconnection = sqlite:////mnt/neutron.sqlite\n' >"$root/root/tables.conf"
# `upgrade heads` changes tables in ways that SQLite has not: they are made as they are now.
cat >"$root/root/tables.py" <<'PY'
from neutron.db.migration.models import head  # all tables
from neutron_lib.db import model_base
import sqlalchemy
model_base.BASEV2.metadata.create_all(sqlalchemy.create_engine("sqlite:////mnt/neutron.sqlite"))
PY
chroot "$root" sh -eu -c 'cd /root; python3 tables.py; neutron-db-manage --config-file tables.conf stamp heads; mv /mnt/neutron.sqlite .'
IN
mv "$new" "$root"
trap - EXIT
echo "$root"
