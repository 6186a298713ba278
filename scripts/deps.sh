#!/bin/sh
# Installs what tests and demonstrations call beside our own binary: Debian's nft lists what we program.
set -eu
command -v nft >/dev/null 2>&1 || [ -x /usr/sbin/nft ] && exit 0
echo "installing nftables (apt-get)"
apt-get update -qq || true
DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends nftables >/dev/null
