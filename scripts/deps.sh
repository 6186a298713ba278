#!/bin/sh
# Installs what tests and demonstrations call beside our own binary: Debian's nft lists what we program; iptables (both
# backends) and ipset take the texts that internal/dataplane/iptables makes.
set -eu
PATH=$PATH:/usr/sbin:/sbin
missing=
for need in nft:nftables iptables-nft-restore:iptables iptables-legacy-restore:iptables ipset:ipset; do
	command -v "${need%%:*}" >/dev/null 2>&1 || missing="$missing ${need#*:}"
done
[ -z "$missing" ] && exit 0
echo "installing$missing (apt-get)"
apt-get update -qq || true
# shellcheck disable=SC2086 # one word for each package
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $missing >/dev/null
