#!/bin/sh
# Installs the programs that are named: nft lists what we program, for tests and demonstrations; systemd-analyze reads
# the units that we install, iptables and ipset take the texts of internal/dataplane/iptables, and the CNI project's plugins are
# chained behind ours, in tests.
set -eu
for program in "$@"; do
	command -v "$program" >/dev/null 2>&1 || [ -x "/usr/sbin/$program" ] && continue
	case $program in
	nft) package=nftables ;;
	iptables-nft-restore | iptables-legacy-restore) package=iptables ;;
	ipset) package=ipset ;;
	/usr/lib/cni/portmap) package=containernetworking-plugins ;;
	systemd-analyze) package=systemd ;;
	*) echo "$0: no package is known for $program" >&2; exit 2 ;;
	esac
	echo "installing $package (apt-get)"
	apt-get update -qq || true
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
done
