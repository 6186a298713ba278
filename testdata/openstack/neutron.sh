# What a user of OpenStack does, and Nova: calls of Neutron's REST API, and the call of Nova's that Neutron makes. Needs OPENSTACK_ROOT, which
# scripts/openstack.sh makes, and OPENSTACK_DRIVER.
set -eu
dir=$(dirname "$(dirname "$TWILL_SOCKET")")/h1/neutron
mkdir -p "$dir"
cd "$dir"
# SQLite, which stands for a real database here, lets one process write at a time, and fails others in the middle of a transaction: 500.
api() { # METHOD PATH [BODY]
	for try in 1 2 3 4 5 6 7 8 9; do
		code=$(curl -sS --max-time 60 -o answer.$$ -w '%{http_code}' -X "$1" -H 'Content-Type: application/json' "http://127.0.0.1:9696/v2.0/$2" ${3:+-d "$3"}) || return 1
		[ "$code" = 500 ] || break
	done
	cat answer.$$
	rm answer.$$
	[ "$code" -lt 300 ]
}
field() { python3 -c 'import json, sys; d = json.load(sys.stdin)
for k in sys.argv[1].split("."): d = d[int(k) if k.isdigit() else k]
print(d)' "$1"; }
plugin() { setsid twill openstack-plugin --socket "$dir/plugin.sock" </dev/null >>plugin.log 2>&1 & echo $! >plugin.pid; }
case $1 in
start) # [SECONDS between resyncs]
	plugin
	cat >nova.py <<-'PY'
	import http.server, json
	class Nova(http.server.BaseHTTPRequestHandler):
	    def do_POST(self):
	        events = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["events"]
	        with open("nova.events", "a") as out:
	            for e in events: print(e["name"], e["status"], e["tag"], file=out)
	        body = json.dumps({"events": [dict(e, code=200) for e in events]}).encode()
	        self.send_response(200)
	        self.send_header("Content-Type", "application/json")
	        self.send_header("Content-Length", str(len(body)))
	        self.end_headers()
	        self.wfile.write(body)
	http.server.HTTPServer(("127.0.0.1", 8774), Nova).serve_forever()
	PY
	setsid python3 nova.py </dev/null >nova.log 2>&1 &
	echo $! >nova.pid
	cp "$OPENSTACK_ROOT/root/neutron.sqlite" .
	cat >neutron.conf <<-CONF
	[DEFAULT]
	core_plugin = ml2
	service_plugins =
	auth_strategy = noauth
	bind_host = 127.0.0.1
	bind_port = 9696
	transport_url = fake://
	api_workers = 1
	rpc_workers = 0
	dhcp_agent_notification = false
	notify_nova_on_port_status_changes = true
	notify_nova_on_port_data_changes = false
	send_events_interval = 0
	state_path = /mnt/state
	[oslo_concurrency]
	lock_path = /mnt/lock
	[database]
	connection = sqlite:////mnt/neutron.sqlite
	[nova]
	auth_type = none
	endpoint = http://127.0.0.1:8774/v2.1
	[ml2]
	type_drivers = local,flat
	tenant_network_types = local
	mechanism_drivers = twill
	extension_drivers = port_security
	[twill]
	socket = /mnt/plugin.sock
	resync_interval_secs = ${2:-5}
	CONF
	mkdir -p python/networking_twill-0.1.0.dist-info
	cp -r "$OPENSTACK_DRIVER" python/
	printf 'Metadata-Version: 2.1\nName: networking-twill\nVersion: 0.1.0\n' >python/networking_twill-0.1.0.dist-info/METADATA
	printf '[neutron.ml2.mechanism_drivers]\ntwill = networking_twill.driver:TwillMechanismDriver\n' >python/networking_twill-0.1.0.dist-info/entry_points.txt
	setsid unshare --mount sh -eu -c '
		mount --bind /dev "$OPENSTACK_ROOT/dev"
		mount -t proc proc "$OPENSTACK_ROOT/proc"
		mount --bind . "$OPENSTACK_ROOT/mnt"
		exec chroot "$OPENSTACK_ROOT" env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/mnt/python neutron-server --config-file /mnt/neutron.conf' </dev/null >"${OPENSTACK_LOG:-neutron}.log" 2>&1 &
	echo $! >neutron.pid
	;;
stop)
	kill "$(cat neutron.pid)" "$(cat plugin.pid)" "$(cat nova.pid)"
	for p in neutron plugin nova; do while [ -e "/proc/$(cat $p.pid)" ]; do sleep 0.1; done; done
	;;
plugin-start) plugin ;;
plugin-stop) kill "$(cat plugin.pid)"; while [ -e "/proc/$(cat plugin.pid)" ]; do sleep 0.1; done ;;
answers) api GET networks ;;
resync) twill openstack-plugin resync --socket "$dir/plugin.sock" --within 50s ;;
agents)
	shift
	for host; do api GET agents | python3 -c 'import json, sys
sys.exit(not [a for a in json.load(sys.stdin)["agents"] if a["host"] == sys.argv[1] and a["alive"]])' "$host"; done
	;;
net)
	api POST networks '{"network": {"name": "blue", "tenant_id": "p1"}}' | field network.id >net
	api POST subnets '{"subnet": {"network_id": "'"$(cat net)"'", "cidr": "10.65.0.0/16", "ip_version": 4, "tenant_id": "p1"}}' >/dev/null
	;;
port) # HOST ADDRESS MAC
	api POST ports '{"port": {"network_id": "'"$(cat net)"'", "tenant_id": "p1", "device_id": "0a1b2c3d-0000-4000-8000-00000000000'"${2#h}"'", "device_owner": "compute:nova", "binding:host_id": "'"$2"'", "mac_address": "'"$4"'", "fixed_ips": [{"ip_address": "'"$3"'"}]}}' >"port.$2"
	field port.id <"port.$2" >"$2.id"
	test "$(field port.binding:vif_type <"port.$2")" = tap
	field port.security_groups.0 <"port.$2" >group
	;;
status) # HOST STATUS
	test "$(api GET "ports/$(cat "$2.id")" | field port.status)" = "$3"
	;;
tap) # LINK: what Nova does
	ip link set "$2" down
	ip link set "$2" name "tap$(cut -c1-11 h1.id)"
	ip link set "tap$(cut -c1-11 h1.id)" up
	;;
allow) # [PROTOCOL FIRST LAST PREFIX]
	api POST security-group-rules '{"security_group_rule": {"security_group_id": "'"$(cat group)"'", "tenant_id": "p1", "direction": "ingress", "ethertype": "IPv4", "protocol": "'"${2:-tcp}"'", "port_range_min": '"${3:-80}"', "port_range_max": '"${4:-80}"', "remote_ip_prefix": "'"${5:-10.65.2.0/24}"'"}}' | field security_group_rule.id >rule
	;;
deny) api DELETE "security-group-rules/$(cat rule)" ;;
endpoints) test "$(twill get workloadendpoints -n openstack -o name | wc -l)" = "$2" ;; # COUNT
rules) # COUNT: of ingress, that are about port 80
	test "$(twill get networkpolicy "ossg.default.$(cat group)" -n openstack -o json | grep -c '"ports"')" = "$2"
	;;
admin) api PUT "ports/$(cat "$2.id")" '{"port": {"admin_state_up": '"$3"'}}' >/dev/null ;;
route) ip route show table all 10.65.1.5 | grep -q "dev tap" ;; # on this host, to its tap
announce) # PORT: as QEMU does where the machine goes on, by RARP; prints how long none of the stream's words came to that UDP port, and wants no gap in the next 500
	figure=$(python3 - "$2" <<-'PY'
	import socket, struct, sys, time
	s, mac, numbers = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3)), bytes.fromhex("fa163e000005"), []
	s.bind(("eth0", 0))
	s.settimeout(10)
	begin = time.monotonic()
	s.send(b"\xff" * 6 + mac + bytes.fromhex("80350001080006040003") + (mac + bytes(4)) * 2 + bytes(18))
	while len(numbers) < 500:
	    f = s.recv(2000)
	    if f[12:14] == b"\x08\x00" and f[23] == 17 and f[36:38] == struct.pack("!H", int(sys.argv[1])):
	        if not numbers: first = time.monotonic() - begin
	        numbers.append(struct.unpack("!Q", f[42:50])[0])
	lost = max(numbers) - min(numbers) + 1 - len(set(numbers))
	print("live migration: from the announcement to the first word %.1f ms; of the next %d none is lost" % (first * 1000, len(numbers)))
	sys.exit(lost and "%d words are lost after the switch" % lost)
	PY
	)
	echo "$figure" | tee -a "${OPENSTACK_FIGURES:-/dev/null}"
	;;
delete) api DELETE "ports/$(cat "$2.id")" ;;
bind) # HOST: what Nova does before it migrates the machine there
	api POST "ports/$(cat h1.id)/bindings" '{"binding": {"host": "'"$2"'", "vnic_type": "normal"}}' >binding
	test "$(field binding.vif_type <binding) $(field binding.status <binding)" = "tap INACTIVE"
	;;
notice) api PUT "ports/$(cat h1.id)" '{"port": {"binding:profile": {"migrating_to": "'"$2"'"}}}' >/dev/null ;; # HOST: it begins
activate) api PUT "ports/$(cat h1.id)/bindings/$2/activate" >/dev/null ;; # HOST: the machine is there
finish) api PUT "ports/$(cat h1.id)" '{"port": {"binding:host_id": "'"$2"'", "binding:profile": {}}}' >/dev/null ;; # HOST: the machine is there, says Nova
unbind) # HOST: the machine is there no more, or will not be
	api PUT "ports/$(cat h1.id)" '{"port": {"binding:profile": {}}}' >/dev/null
	api DELETE "ports/$(cat h1.id)/bindings/$2"
	;;
bound) test "$(api GET "ports/$(cat h1.id)" | field port.binding:host_id)" = "$2" ;; # HOST
nova-forget) : >nova.events ;;
nova) grep -qx "$2 $(cat h1.id)" nova.events ;; # EVENT STATUS: Nova was called
nova-not) ! grep -x "$2 $(cat h1.id)" nova.events >&2 ;;
on) # HOST...: all hosts that have an endpoint
	shift
	test "$(twill get workloadendpoints -n openstack -o json | python3 -c 'import json, sys
print(*sorted(w["spec"]["node"] for w in json.load(sys.stdin)["items"]))')" = "$*"
	;;
migration) # [SOURCE TARGET]: all that there are
	shift
	test "$(twill get livemigrations -n openstack -o json | python3 -c 'import json, sys
for m in json.load(sys.stdin)["items"]: print(m["spec"]["source"]["workloadEndpoint"]["hostname"], m["spec"]["target"]["workloadEndpoint"]["hostname"])')" = "$*"
	;;
wipe)
	for kind in workloadendpoint livemigration networkpolicy; do
		twill get $kind -n openstack -o name | while read -r name; do twill delete "${name%%/*}" "${name##*/}" -n openstack; done
	done
	;;
esac
