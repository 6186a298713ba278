#!/bin/sh
# Installs the programs that are named: nft lists what we program, for tests and demonstrations; systemd-analyze reads
# the units that we install, iptables and ipset take the texts of internal/dataplane/iptables, and the CNI project's plugins are
# chained behind ours, in tests; bird and FRR are BGP peers of ours there, udhcpc and dhclient clients of our DHCP servers;
# qemu runs a virtual machine whose disk mmdebstrap and mke2fs make; containerd and runc are those of a Kubernetes cluster's nodes;
# dockerd has our drivers for its networks; debootstrap makes the root of a neutron-server;
# protoc and Python's gRPC are those of an example of a dataplane driver in Python;
# lintian and rpm judge and install packages that we make.
set -eu

# Daemons that a package brings are not started: tests run their own.
quiet() {
	policy=/usr/sbin/policy-rc.d
	if [ ! -e "$policy" ]; then
		printf '#!/bin/sh\nexit 101\n' >"$policy"
		chmod +x "$policy"
		trap 'rm -f "$policy"' EXIT
	fi
}

for program in "$@"; do
	command -v "$program" >/dev/null 2>&1 || [ -x "/usr/sbin/$program" ] && continue
	case $program in
	nft) package=nftables ;;
	iptables-nft-restore | iptables-legacy-restore) package=iptables ;;
	ipset) package=ipset ;;
	/usr/lib/cni/portmap) package=containernetworking-plugins ;;
	bird) package=bird2 ;;
	vtysh) package=frr ;;
	udhcpc) package=udhcpc ;;
	dhclient) package=isc-dhcp-client ;;
	systemd-analyze) package=systemd ;;
	qemu-system-x86_64) package=qemu-system-x86 ;;
	mmdebstrap) package=mmdebstrap ;;
	mke2fs) package=e2fsprogs ;;
	containerd) package=containerd ;;
	runc) package=runc ;;
	dockerd) package=docker.io ;;
	docker-compose) package=docker-compose ;;
	debootstrap) package=debootstrap ;;
	protoc) package=protobuf-compiler ;;
	*/python3/dist-packages/grpc) package=python3-grpcio ;;
	*/python3/dist-packages/google/protobuf) package=python3-protobuf ;;
	lintian) package=lintian ;;
	rpm) package=rpm ;;
	*) echo "$0: no package is known for $program" >&2; exit 2 ;;
	esac
	echo "installing $package (apt-get)"
	quiet
	apt-get update -qq || true
	DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "$package" >/dev/null
done
