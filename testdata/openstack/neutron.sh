# What a user of OpenStack does, and Nova: calls of Neutron's REST API, and the call of Nova's that Neutron makes. Needs OPENSTACK_ROOT, which
# scripts/openstack.sh makes, and OPENSTACK_DRIVER.
set -eu
if [ -n "${TWILL_SOCKET:-}" ]; then # else this is a machine
	dir=$(dirname "$(dirname "$TWILL_SOCKET")")/h1/neutron
	mkdir -p "$dir"
	cd "$dir"
fi
# SQLite, which stands for a real database here, lets one process write at a time, and fails others in the middle of a transaction: 500.
api() { # METHOD PATH [BODY]
	for try in 1 2 3 4 5 6 7 8 9; do
		code=$(curl -sS --max-time 60 -o answer.$$ -w '%{http_code}' -X "$1" -H 'Content-Type: application/json' "http://127.0.0.1:${NEUTRON_PORT:-9696}/v2.0/$2" ${3:+-d "$3"}) || return 1
		[ "$code" = 500 ] || break
		sleep "$try" # the other process has time to end its transaction
	done
	cat answer.$$
	rm answer.$$
	[ "$code" -lt 300 ]
}
field() { python3 -c 'import json, sys; d = json.load(sys.stdin)
for k in sys.argv[1].split("."): d = d[int(k) if k.isdigit() else k]
print(d)' "$1"; }
plugin() { # [2]: of the second server
	setsid twill openstack-plugin --socket "$dir/plugin$1.sock" </dev/null >>"plugin$1.log" 2>&1 &
	echo $! >"plugin$1.pid"
}
neutron() { # [2]
	setsid unshare --mount sh -eu -c '
		mount --bind /dev "$OPENSTACK_ROOT/dev"
		mount -t proc proc "$OPENSTACK_ROOT/proc"
		mount --bind . "$OPENSTACK_ROOT/mnt"
		exec chroot "$OPENSTACK_ROOT" env PYTHONDONTWRITEBYTECODE=1 PYTHONPATH=/mnt/python neutron-server --config-file "/mnt/neutron$0.conf"' "$1" </dev/null >>"${OPENSTACK_LOG:-neutron$1}.log" 2>&1 &
	echo $! >"neutron$1.pid"
}
gone() { while kill -0 "$@" 2>/dev/null; do sleep 0.1; done; } # PID, or -- -GROUP
case $1 in
start) # [SECONDS between resyncs [SERVICE PLUGINS [EXTENSION DRIVERS]]]
	plugin ""
	cat >nova.py <<-'PY'
	import http.server, json
	class Nova(http.server.BaseHTTPRequestHandler): # and Keystone, below /v3
	    def answer(self, code, body, **headers):
	        body = json.dumps(body).encode()
	        self.send_response(code)
	        for name, value in dict(headers, Content_Type="application/json", Content_Length=str(len(body))).items(): self.send_header(name.replace("_", "-"), value)
	        self.end_headers()
	        self.wfile.write(body)
	    def do_GET(self):
	        if not self.path.startswith("/v3/projects/"): return self.answer(200, {"version": {"id": "v3.14", "status": "stable", "links": [{"rel": "self", "href": "http://127.0.0.1:8774/v3/"}]}})
	        self.answer(200, {"project": {"id": "p1", "name": "Blue team", "parent_id": "domain1"}})
	    def do_POST(self):
	        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
	        if self.path.startswith("/v3/auth"):
	            at = [{"url": "http://127.0.0.1:8774/v3/", "interface": i, "region_id": "r", "region": "r", "id": i} for i in ("internal", "public")]
	            return self.answer(201, {"token": {"methods": ["password"], "expires_at": "2099-01-01T00:00:00.000000Z", "issued_at": "2020-01-01T00:00:00.000000Z", "user": {"id": "n", "name": "neutron", "domain": {"id": "default", "name": "Default"}},
	                "project": {"id": "s", "name": "service", "domain": {"id": "default", "name": "Default"}}, "roles": [], "catalog": [{"type": "identity", "name": "keystone", "id": "k", "endpoints": at}]}}, X_Subject_Token="t")
	        with open("nova.events", "a") as out:
	            for e in asked["events"]: print(e["name"], e["status"], e["tag"], file=out)
	        self.answer(200, {"events": [dict(e, code=200) for e in asked["events"]]})
	http.server.HTTPServer(("127.0.0.1", 8774), Nova).serve_forever()
	PY
	setsid python3 nova.py </dev/null >nova.log 2>&1 &
	echo $! >nova.pid
	cp "$OPENSTACK_ROOT/root/neutron.sqlite" .
	python3 -c 'import sqlite3; sqlite3.connect("neutron.sqlite").execute("pragma journal_mode = wal")' # who writes does not wait for who reads
	cat >neutron.conf <<-CONF
	[DEFAULT]
	core_plugin = ml2
	service_plugins = ${3:-}
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
	[keystone_authtoken]
	auth_type = password
	auth_url = http://127.0.0.1:8774/v3
	username = neutron
	password = secret
	project_name = service
	user_domain_id = default
	project_domain_id = default
	[ml2]
	type_drivers = local,flat
	tenant_network_types = local
	mechanism_drivers = twill
	extension_drivers = port_security${4:+,$4}
	[twill]
	socket = /mnt/plugin.sock
	resync_interval_secs = ${2:-5}
	CONF
	mkdir -p python/networking_twill-0.1.0.dist-info
	cp -r "$OPENSTACK_DRIVER" python/
	printf 'Metadata-Version: 2.1\nName: networking-twill\nVersion: 0.1.0\n' >python/networking_twill-0.1.0.dist-info/METADATA
	python3 - "$OPENSTACK_DRIVER/../pyproject.toml" >python/networking_twill-0.1.0.dist-info/entry_points.txt <<-'PY'
	import sys, tomllib
	for group, points in tomllib.load(open(sys.argv[1], "rb"))["project"]["entry-points"].items():
	    print("[%s]" % group, *("%s = %s" % p for p in points.items()), sep="\n")
	PY
	neutron ""
	;;
second) # a second server, on the same database, with a plugin of its own
	sed 's/9696/9697/; s/plugin.sock/plugin2.sock/; s/mnt.state/mnt\/state2/; s/mnt.lock/mnt\/lock2/' neutron.conf >neutron2.conf
	plugin 2
	neutron 2
	;;
kill) # neutron|plugin [2]: with all of its processes, in the midst of what they do
	kill -9 -- "-$(cat "$2${3:-}.pid")"
	gone -- "-$(cat "$2${3:-}.pid")"
	rm "$2${3:-}.pid"
	;;
again) "$2" "${3:-}" ;; # neutron|plugin [2]
stop)
	for p in neutron neutron2 plugin plugin2 nova; do
		[ ! -e "$p.pid" ] || kill "$(cat "$p.pid")"
	done
	for p in neutron neutron2 plugin plugin2 nova; do
		[ ! -e "$p.pid" ] || gone "$(cat "$p.pid")"
	done
	;;
plugin-start) plugin "" ;;
plugin-stop) kill "$(cat plugin.pid)"; gone "$(cat plugin.pid)" ;;
answers) api GET networks ;;
resync)
	begin=$(date +%s%N)
	said=$(twill openstack-plugin resync --socket "$dir/plugin.sock" --within 300s)
	echo "$said"
	echo "resync: $((($(date +%s%N) - begin) / 1000000)) ms, $said" >>"${OPENSTACK_FIGURES:-/dev/null}"
	;;
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
	test "$(field port.binding:vif_details.mac_address <"port.$2")" = "fe:${4#*:}" # of the tap: the same wherever the machine goes
	field port.security_groups.0 <"port.$2" >group
	;;
fe) # a port of h1 whose own MAC address begins with fe, so that its tap's cannot be made of it
	api POST ports '{"port": {"network_id": "'"$(cat net)"'", "tenant_id": "p1", "device_id": "fe", "device_owner": "compute:nova", "binding:host_id": "h1", "mac_address": "fe:16:3e:00:00:05"}}' >port.fe
	test "$(field port.binding:vif_details.mac_address <port.fe)" = 00:61:fe:ed:ca:fe
	api DELETE "ports/$(field port.id <port.fe)"
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
project) test "$(twill get workloadendpoints -n openstack -o json | python3 -c 'import json, sys
for w in json.load(sys.stdin)["items"]: print(*(w["metadata"]["labels"].get("projectcalico.org/openstack-project-" + l, "-") for l in ("id", "name", "parent-id")))')" = "$2" ;; # ID NAME PARENT: of the only port
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
	s.setsockopt(socket.SOL_SOCKET, 33, 64 << 20) # SO_RCVBUFFORCE: what comes while this waits for a processor
	s.bind(("eth0", 0))
	s.settimeout(120)
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
	test "$(field binding.vif_details.mac_address <binding)" = "$(api GET "ports/$(cat h1.id)" | field port.binding:vif_details.mac_address)"
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
churn) # changes ports of h2 and rules of the group at either server, until churned; what one does not take, the other is asked
	cat >churn.py <<-'PY'
	import json, os, random, sys, time, urllib.error, urllib.request
	net, group, servers, done = sys.argv[1], sys.argv[2], [9696, 9697], 0
	def call(method, path, body=None):
	    for _ in range(200):
	        port = random.choice(servers)
	        try:
	            r = urllib.request.Request("http://127.0.0.1:%d/v2.0/%s" % (port, path), json.dumps(body).encode() if body else None, {"Content-Type": "application/json"}, method=method)
	            text = urllib.request.urlopen(r, timeout=20).read()
	            return json.loads(text) if text else {}
	        except urllib.error.HTTPError as e:
	            if e.code in (404, 409): return {}  # an earlier try has done it
	            e.read()
	        except (OSError, ValueError): pass
	        time.sleep(0.2)
	    sys.exit("no server takes %s %s" % (method, path))
	ports, rules = [], []
	while not os.path.exists("enough"):
	    what = random.randrange(5)
	    if what == 0 or not ports:
	        made = call("POST", "ports", {"port": {"network_id": net, "tenant_id": "p1", "device_id": "machine-%d" % done, "device_owner": "compute:nova", "binding:host_id": "h2"}})
	        ports += [made["port"]["id"]] if made else []
	    elif what == 1 and len(ports) > 2: call("DELETE", "ports/" + ports.pop(random.randrange(len(ports))))
	    elif what == 2: call("PUT", "ports/" + random.choice(ports), {"port": {"admin_state_up": random.random() < 0.5}})
	    elif what == 3:
	        made = call("POST", "security-group-rules", {"security_group_rule": {"security_group_id": group, "tenant_id": "p1", "direction": "ingress", "ethertype": "IPv4", "protocol": "tcp", "port_range_min": 1000 + done, "port_range_max": 1000 + done}})
	        rules += [made["security_group_rule"]["id"]] if made else []
	    elif rules: call("DELETE", "security-group-rules/" + rules.pop())
	    done += 1
	    print(done, what, flush=True)
	PY
	rm -f enough
	setsid python3 churn.py "$(cat net)" "$(cat group)" </dev/null >>churn.log 2>&1 &
	echo $! >churn.pid
	;;
churned) # [AT LEAST]: so much was done, and no more is
	until [ "$(tail -n 1 churn.log | cut -d' ' -f1)" -ge "$2" ] || ! kill -0 "$(cat churn.pid)"; do sleep 0.2; done 2>/dev/null
	touch enough
	gone "$(cat churn.pid)"
	test "$(tail -n 1 churn.log | cut -d' ' -f1)" -ge "$2"
	echo "two servers: $(tail -n 1 churn.log | cut -d' ' -f1) changes while they were killed" | tee -a "${OPENSTACK_FIGURES:-/dev/null}"
	;;
same) # the datastore has what Neutron has, and nothing else
	api GET 'ports' >ports.json
	api GET "security-groups/$(cat group)" >group.json
	twill get workloadendpoints -n openstack -o json >endpoints.json
	twill get networkpolicy "ossg.default.$(cat group)" -n openstack -o json >policy.json
	python3 -c 'import json
of = lambda name: json.load(open(name + ".json"))
want = sorted((p["id"], p["binding:host_id"]) for p in of("ports")["ports"] if p["admin_state_up"] and p["device_owner"] == "compute:nova")
have = sorted((w["spec"]["endpoint"], w["spec"]["node"]) for w in of("endpoints")["items"])
assert want == have, "endpoints: want %s, have %s" % (want, have)
spec, rules = of("policy")["spec"], of("group")["security_group"]["security_group_rules"]
have = [len(spec.get("ingress", [])), len(spec.get("egress", []))]
want = [sum(r["direction"] == d for r in rules) for d in ("ingress", "egress")]
assert want == have, "rules: want %s, have %s" % (want, have)'
	;;
many) # COUNT: as many ports on a host that is not there, copies in Neutron's database of the one of h1
	python3 - "$(cat h1.id)" "$2" <<-'PY'
	import sqlite3, sys, uuid
	db, of = sqlite3.connect("neutron.sqlite", timeout=60, isolation_level=None), sys.argv[1]
	db.row_factory = sqlite3.Row
	db.execute("begin immediate")
	def add(table, row, **changes):
	    row = dict(row, **changes)
	    db.execute("insert into %s (%s) values (%s)" % (table, ",".join(row), ",".join("?" * len(row))), list(row.values()))
	tables = [t for t, in db.execute("select name from sqlite_master where type = 'table'").fetchall() if "port_id" in [c[1] for c in db.execute("pragma table_info(%s)" % t)]]
	port = db.execute("select * from ports where id = ?", [of]).fetchone()
	attributes = db.execute("select * from standardattributes where id = ?", [port["standard_attr_id"]]).fetchone()
	rows = [(t, r) for t in tables for r in db.execute("select * from %s where port_id = ?" % t, [of]).fetchall()]
	for n in range(int(sys.argv[2])):
	    attribute, = db.execute("select max(id) + 1 from standardattributes").fetchone()
	    id = str(uuid.uuid4())
	    add("standardattributes", attributes, id=attribute)
	    add("ports", port, id=id, standard_attr_id=attribute, mac_address="fa:16:3e:01:%02x:%02x" % divmod(n, 256), device_id="machine-%d" % n)
	    for table, row in rows:
	        changes = {"port_id": id}
	        if "ip_address" in row.keys(): changes["ip_address"] = "10.65.%d.%d" % (100 + n // 250, n % 250 + 1)
	        if "host" in row.keys(): changes["host"] = "h9"
	        add(table, row, **changes)
	db.execute("commit")
	PY
	;;
floating) # ADDRESS: one of a network outside, and that network
	api POST networks '{"network": {"name": "public", "router:external": true, "tenant_id": "p0"}}' | field network.id >public
	api POST subnets '{"subnet": {"network_id": "'"$(cat public)"'", "cidr": "10.9.0.0/24", "ip_version": 4, "enable_dhcp": false, "tenant_id": "p0"}}' >/dev/null
	api GET "ports/$(cat h1.id)" | field port.fixed_ips.0.subnet_id >subnet
	api POST floatingips '{"floatingip": {"floating_network_id": "'"$(cat public)"'", "floating_ip_address": "'"$2"'", "tenant_id": "p1"}}' | field floatingip.id >floatingip.id
	;;
float) api PUT "floatingips/$(cat floatingip.id)" '{"floatingip": {"port_id": '"$([ "$2" = null ] && echo null || echo "\"$(cat "$2.id")\"")"'}}' >/dev/null ;; # HOST|null: to the port of that host, or of none
router) # from that network to the subnet of the port of h1
	api POST routers '{"router": {"name": "r", "tenant_id": "p1", "external_gateway_info": {"network_id": "'"$(cat public)"'"}}}' | field router.id >router
	api PUT "routers/$(cat router)/add_router_interface" '{"subnet_id": "'"$(cat subnet)"'"}' >/dev/null
	;;
float-status) test "$(api GET "floatingips/$(cat floatingip.id)" | field floatingip.status)" = "$2" ;; # STATUS
floats) # PAIR|"": the address of the endpoint of h1, and its floating one
	test "$(twill get workloadendpoints -n openstack -o json | python3 -c 'import json, sys
for w in json.load(sys.stdin)["items"]:
    for n in w["spec"].get("ipNATs", []): print(n["internalIP"], n["externalIP"])')" = "$2"
	;;
limit) # KILOBITS a second: what the machine of h1 may send; of the network's policy at first, then of the rule that is there
	if [ ! -e policy.id ]; then
		api POST qos/policies '{"policy": {"name": "slow", "tenant_id": "p1"}}' | field policy.id >policy.id
		api POST "qos/policies/$(cat policy.id)/bandwidth_limit_rules" '{"bandwidth_limit_rule": {"max_kbps": '"$2"', "direction": "egress"}}' | field bandwidth_limit_rule.id >limit.id
		api PUT "networks/$(cat net)" '{"network": {"qos_policy_id": "'"$(cat policy.id)"'"}}' >/dev/null
	else
		api PUT "qos/policies/$(cat policy.id)/bandwidth_limit_rules/$(cat limit.id)" '{"bandwidth_limit_rule": {"max_kbps": '"$2"'}}' >/dev/null
	fi
	;;
unlimit) api PUT "networks/$(cat net)" '{"network": {"qos_policy_id": null}}' >/dev/null ;;
limited) # BITS a second of what the machine sends, as its endpoint has it, or none
	test "$(twill get workloadendpoints -n openstack -o json | python3 -c 'import json, sys
for w in json.load(sys.stdin)["items"]: print(w["spec"].get("qosControls", {}).get("egressBandwidth", "none"))')" = "$2"
	;;
unmarked) # Neutron refuses a rule that would have no effect
	code=$(curl -sS -o /dev/null -w '%{http_code}' -X POST -H 'Content-Type: application/json' "http://127.0.0.1:9696/v2.0/qos/policies/$(cat policy.id)/dscp_marking_rules" -d '{"dscp_marking_rule": {"dscp_mark": 26}}')
	test "$code" = 409
	;;
knock) # ADDRESS: who calls the floating address is answered by the machine itself, on which nobody listens
	timeout 60 bash -c "</dev/tcp/$2/80" 2>&1 | grep refused
	;;
mark) twill get workloadendpoints -n openstack -o json | python3 -c 'import json, sys
for w in json.load(sys.stdin)["items"]:
    if w["spec"]["endpoint"] == sys.argv[1]: print(w["metadata"]["uid"])' "$(cat h1.id)" >"mark.$2"; test -s "mark.$2" ;; # NAME: the endpoint of the port of h1
marked) cmp "mark.$2" "mark.$3" ;; # NAME NAME: it is still that one
leads) test "$(cat plugin${3:-}.log | grep -c 'msg=leads')" -ge "$2" ;; # TIMES [2|*]: a server has been elected, or all of them together
calls) ! grep -c "$(cat h1.id)" nova.events >&2 ;; # none of Nova about the port of h1
wipe)
	for kind in workloadendpoint livemigration networkpolicy; do
		twill get $kind -n openstack -o name | while read -r name; do twill delete "${name%%/*}" "${name##*/}" -n openstack; done
	done
	;;
esac
