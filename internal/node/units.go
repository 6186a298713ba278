package node

import "strings"

// unitTexts are the units by their names, for a binary at a path; origin is their first line, a comment that says who put them there.
func unitTexts(binary, origin string) map[string]string {
	out := map[string]string{}
	for name, text := range map[string]string{bootUnit: bootUnitText, nodeUnit: nodeUnitText} {
		out[name] = origin + strings.Replace(text, "ExecStart=twill", "ExecStart="+binary, 1)
	}
	return out
}

const bootUnitText = `
[Unit]
Description=Twill: workloads carry nothing until their policy is in force
Documentation=https://github.com/twillnet/twill/blob/main/docs/install.md
DefaultDependencies=no
After=local-fs.target systemd-modules-load.service
Before=network-pre.target twill-node.service
Wants=network-pre.target

[Service]
Type=oneshot
RemainAfterExit=yes
EnvironmentFile=-/etc/twill/node.env
ExecStart=twill node boot

[Install]
WantedBy=sysinit.target
`

const nodeUnitText = `
[Unit]
Description=Twill: networking and policy of this host
Documentation=https://github.com/twillnet/twill/blob/main/docs/install.md
After=network-online.target twill-boot.service
Wants=network-online.target twill-boot.service

[Service]
Type=exec
EnvironmentFile=-/etc/twill/node.env
ExecStart=twill node
# It may die at any time: the kernel keeps policy and routes.
Restart=always
RestartSec=1
KillMode=mixed
LimitNOFILE=1048576
OOMScoreAdjust=-900
RuntimeDirectory=twill
RuntimeDirectoryPreserve=yes

[Install]
WantedBy=multi-user.target
`

const configText = `# Settings of Twill's agent, lines of name = value. "twill config params" lists them with their
# defaults; "twill config" prints what is in effect and where each value came from. The
# environment and FelixConfiguration resources in the datastore win over this file.

# interfacePrefix = cali
# defaultEndpointToHostAction = Drop
# prometheusMetricsEnabled = true
`

// envText is the environment of the units.
func envText(lines []string) string {
	text := `# Environment of twill-node.service. After a change: systemctl restart twill-node

# Where the datastore is. Without this line the host runs a member of its own, on a socket for root alone.
# ETCD_ENDPOINTS=https://192.0.2.1:2379,https://192.0.2.2:2379,https://192.0.2.3:2379
# ETCD_CA_CERT_FILE=/etc/twill/pki/agent/ca.crt
# ETCD_CERT_FILE=/etc/twill/pki/agent/client.crt
# ETCD_KEY_FILE=/etc/twill/pki/agent/client.key
# One connection of this host to each member, by a proxy that its daemons share: twill etcd proxy --help.
# TWILL_ETCD_PROXY=true

# Name of this node in the datastore; default is the host's name.
# NODENAME=

# This node's addresses for other nodes: autodetect, none or an address. Default: IPv4 is found if
# the Node has none. "twill node address" shows what would be found, and how.
# IP=autodetect
# IP_AUTODETECTION_METHOD=interface=bond0,eth.*
# IP6=autodetect
# IP6_AUTODETECTION_METHOD=cidr=2001:db8::/32

# Directory of log files, one for each daemon: NAME/current, and ten older ones of 10 MB. The journal has all of it as well.
# TWILL_LOG_DIR=/var/log/twill

# Also serve DHCP to virtual machines of OpenStack.
# TWILL_DHCP=true
`
	if len(lines) > 0 {
		text += "\n" + strings.Join(lines, "\n") + "\n"
	}
	return text
}

// withLines gives an environment file NAME=value lines: in place of those that set the same name, or at its end. It says what changes.
func withLines(text string, lines []string) (changed string, changes []string) {
	old := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, line := range lines {
		name, _, _ := strings.Cut(line, "=")
		var out []string
		was, same := "", false
		for _, l := range old {
			if has, _, ok := strings.Cut(strings.TrimSpace(l), "="); !ok || strings.TrimSpace(has) != name {
				out = append(out, l)
				continue
			}
			if was = strings.TrimSpace(l); was == line && !same {
				same = true
				out = append(out, l)
			} else if !same {
				same = true
				out = append(out, line)
				changes = append(changes, line+", which was "+was)
			} else { // systemd takes the last of several: one is left
				changes = append(changes, "without "+was)
			}
		}
		if !same {
			out = append(out, line)
			changes = append(changes, line+", which is new")
		}
		old = out
	}
	return strings.Join(old, "\n") + "\n", changes
}
