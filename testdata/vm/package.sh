# The life of the package twill_*.deb under a real systemd: installed, upgraded under packets, over a reboot and what dies, removed.
# $1: how often the machine has rebooted since.
set -eu

say() { echo "at $(cut -d. -f1 /proc/uptime) s: $*"; }
fail() {
	echo "FAILED: $*"
	cat /tmp/out 2>/dev/null || :
	journalctl --no-pager -b -n 60 -u twill-node -u twill-boot
	exit 1
}
wait_for() {
	n=0
	until "$@" >/tmp/out 2>&1; do
		n=$((n + 1))
		[ $n -lt 180 ] || fail "never true: $*"
		sleep 1
	done
}
must() { "$@" >/tmp/out 2>&1 || fail "$*"; }
never() { ! "$@" >/tmp/out 2>&1 || fail "it should not work: $*"; }

# workload NAME ADDRESS: a container with that address, as a runtime makes it.
workload() {
	ip netns add "$1"
	ip link add "cali$1" type veth peer name eth0 netns "$1"
	ip -n "$1" link set lo up
	ip -n "$1" link set eth0 address "02:00:00:00:00:$3"
	ip -n "$1" addr add "$2/32" dev eth0
	ip -n "$1" link set eth0 up
	ip link set "cali$1" up
	ip -n "$1" route add 169.254.1.1 dev eth0
	ip -n "$1" route add default via 169.254.1.1
}
workloads() {
	workload web 10.65.0.1 01
	workload client 10.65.0.2 02
	workload other 10.65.0.3 03
}
reaches() { ip netns exec "$1" ping -c 1 -W 1 10.65.0.1; }
policy_holds() {
	wait_for reaches client
	must reaches client
	never reaches other
}

# What the kernel drops of workloads before the node has started, as seen by a unit that is ordered between the two.
probe() {
	cat >/etc/systemd/system/probe.service <<-.
		[Unit]
		DefaultDependencies=no
		After=twill-boot.service
		Before=twill-node.service network-pre.target
		[Service]
		Type=oneshot
		ExecStart=/bin/sh -c 'nft list table inet twill >/probe 2>&1'
		[Install]
		WantedBy=sysinit.target
	.
	systemctl enable -q probe.service
}

case $1 in
0)
	sysctl -n net.ipv4.ip_forward >/forwarding
	ip link add d0 type dummy && ip addr add 192.0.2.10/24 dev d0 && ip link set d0 up
	must dpkg -i twill_1.0.0_amd64.deb
	wait_for twill status
	say "installed and ready"
	must systemctl is-active twill-boot twill-node
	workloads
	for w in "web 10.65.0.1 01" "client 10.65.0.2 02" "other 10.65.0.3 03"; do
		set -- $w
		cat <<-.
			---
			apiVersion: projectcalico.org/v3
			kind: WorkloadEndpoint
			metadata: {name: $(hostname)-cni-$1-eth0, namespace: demo, labels: {app: $1}}
			spec: {orchestrator: cni, node: $(hostname), containerID: $1, endpoint: eth0, interfaceName: cali$1, mac: "02:00:00:00:00:$3", ipNetworks: [$2/32]}
		.
	done >/tmp/endpoints.yaml
	cat >/tmp/policy.yaml <<-.
		apiVersion: projectcalico.org/v3
		kind: GlobalNetworkPolicy
		metadata: {name: web}
		spec: {selector: all(), types: [Ingress, Egress], ingress: [{action: Allow, source: {selector: app == "client"}}], egress: [{action: Allow}]}
	.
	must twill apply -f /tmp/policy.yaml
	must twill apply -f /tmp/endpoints.yaml
	policy_holds
	say "policy holds"

	echo "ETCD_HELLO=kept" >>/etc/twill/node.env
	ip netns exec client ping -i 0.05 -W 1 10.65.0.1 >/tmp/stream &
	stream=$!
	ip netns exec other ping -i 0.05 -W 1 10.65.0.1 >/tmp/denied &
	denied=$!
	must dpkg -i twill_1.0.1_amd64.deb
	wait_for twill status
	policy_holds
	kill -INT $stream $denied
	wait $stream $denied || :
	say "upgraded: $(grep transmitted /tmp/stream)"
	grep -q ' 0% packet loss' /tmp/stream || fail "packets were lost"
	grep -q ' 100% packet loss' /tmp/denied || fail "denied packets passed: $(cat /tmp/denied)"
	grep -q ETCD_HELLO=kept /etc/twill/node.env || fail "an upgrade changed settings"

	probe
	exit 64
	;;
1)
	grep -q drop /probe || fail "workloads were not closed before the node started: $(cat /probe)"
	say "closed from the first packet"
	ip link add d0 type dummy && ip addr add 192.0.2.10/24 dev d0 && ip link set d0 up
	wait_for twill status
	must systemctl is-active twill-boot twill-node
	workloads
	policy_holds
	say "ready after a reboot, with the policy that it had"

	ip netns exec client ping -i 0.05 -W 1 10.65.0.1 >/tmp/stream &
	stream=$!
	for n in 1 2 3; do
		must systemctl kill -s KILL --kill-who=main twill-node
		wait_for twill status
	done
	agent=$(pgrep -f '^/usr/bin/twill agent' | head -n 1)
	[ "$agent" ] || fail "no agent runs: $(ps ax)"
	kill -9 "$agent"
	gone() { ! kill -0 "$agent"; }
	wait_for gone
	wait_for twill status
	policy_holds
	kill -INT $stream
	wait $stream || :
	say "daemons that were killed are back: $(grep transmitted /tmp/stream)"
	grep -q ' 0% packet loss' /tmp/stream || fail "packets were lost"

	must dpkg -r twill
	never nft list table inet twill
	[ "$(sysctl -n net.ipv4.ip_forward)" = "$(cat /forwarding)" ] || fail "forwarding is not as it was found"
	never systemctl is-active twill-node
	[ -e /etc/twill/node.env ] || fail "a removal took settings away"
	[ -e /var/lib/twill/etcd ] || fail "a removal took the datastore away"
	must dpkg -P twill
	left=$(find / -xdev -name '*twill*' -not -path '/host/*' -not -path '/var/lib/dpkg/*' -not -path '/tmp/*' -not -path '/var/log/*')
	[ -z "$left" ] || fail "a purge left $left"
	say "removed"
	;;
esac
