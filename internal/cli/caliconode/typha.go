package caliconode

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// TyphaConfig is the file of settings that upstream's fan-out proxy reads, which need not be there.
var TyphaConfig = "/etc/calico/typha.cfg"

// typhaSetting is one of upstream's fan-out proxy: TYPHA_NAME in the environment, NAME in its file, in any case of letters.
type typhaSetting struct {
	name string
	to   string // a flag of `twill relay`, or a variable that it reads; empty: none
	form func(string) (string, error)
	test string // that shows its effect; empty: it has none here
	why  string // what it does, or why it has no effect
}

const (
	testTypha = "caliconode.TestSettingsOfTyphaBecomeFlags"
	testTLS   = "relay.TestWhoIsServed"
	testMoves = "relay.TestWhenARelayComesOthersSendItClients"
	whyBytes  = "what a client lacks is bounded by its bytes, 64 MB, and a slow one costs the others nothing"
	whyWhole  = "a change comes as a whole, in parts of 1 MB, as soon as the datastore has it"
	whyLog    = "the log is written to standard error"
)

// typhaSettings are all that upstream documents.
func typhaSettings() []typhaSetting {
	return []typhaSetting{
		{"DatastoreType", "DATASTORE_TYPE", nil, testTypha, "etcdv3 or kubernetes"},
		{"EtcdEndpoints", "ETCD_ENDPOINTS", nil, testTypha, "where etcd is"},
		{"EtcdAddr", "", nil, testTypha, "HOST:PORT, where EtcdEndpoints is not set"},
		{"EtcdScheme", "", nil, testTypha, "of EtcdAddr; http unless it says https"},
		{"EtcdCaFile", "ETCD_CA_CERT_FILE", nil, testTypha, "etcd's authority"},
		{"EtcdCertFile", "ETCD_CERT_FILE", nil, testTypha, "the certificate that etcd is shown"},
		{"EtcdKeyFile", "ETCD_KEY_FILE", nil, testTypha, "its key"},
		{"ServerHost", "", nil, testTypha, "at which address clients reach it; all"},
		{"ServerPort", "", nil, testTypha, "at which port; 5473"},
		{"CAFile", "--tls-ca", nil, testTLS, "authority of clients' certificates"},
		{"ServerCertFile", "--tls-cert", nil, testTLS, "the relay's certificate"},
		{"ServerKeyFile", "--tls-key", nil, testTLS, "its key"},
		{"ClientCN", "--client-cn", nil, testTLS, "common name that clients' certificates must have, or else ClientURISAN"},
		{"ClientURISAN", "--client-uri-san", nil, testTLS, "URI that they must have"},
		{"ServerPingIntervalSecs", "--ping-interval", seconds, "relay.TestADeadClientIsGivenUp", "for how long a client may say nothing until it is asked for a sign of life; 10 s"},
		{"ServerPongTimeoutSecs", "--pong-timeout", seconds, "relay.TestADeadClientIsGivenUp", "for how long that is waited for; 10 s, upstream's 60 s"},
		{"ServerHandshakeTimeoutSecs", "--handshake-timeout", seconds, "relay.TestADeadClientIsGivenUp", "for how long a new connection may take to say who it is; 10 s"},
		{"ShutdownTimeoutSecs", "--drain", seconds, "relay.TestAClientIsSentAwayWithinTheSpread", "time within which clients are sent elsewhere at the end; 10 s, upstream's 300 s"},
		{"HealthEnabled", "", nil, testTypha, "whether health is served; here it is, unless this says false"},
		{"HealthHost", "", nil, testTypha, "at which address; 127.0.0.1"},
		{"HealthPort", "", nil, testTypha, "at which port; 9098"},
		{"PrometheusMetricsEnabled", "", nil, testTypha, "whether metrics are served"},
		{"PrometheusMetricsHost", "", nil, testTypha, "at which address; all"},
		{"PrometheusMetricsPort", "", nil, testTypha, "at which port; 9093"},
		{"ConnectionRebalancingMode", "", nil, testTypha, "kubernetes: who is more than this relay's share is sent to another; none"},
		{"K8sServiceName", "", nil, testTypha, "of ConnectionRebalancingMode: the Service whose ready endpoints are the relays; calico-typha"},
		{"K8sNamespace", "", nil, testTypha, "its namespace; kube-system"},
		{"K8sPortName", "--relay-port-name", nil, "discovery.TestWhichEndpointsAreRelays", "name of its port; calico-typha"},
		{"ConnectionDropIntervalSecs", "--move-interval", seconds, testMoves, "time between two clients that are sent to another relay; 1 s"},
		{"MaxConnectionsLowerLimit", "--min-clients", nil, testMoves, "with so many or fewer none is; 400"},
		{"MaxConnectionsUpperLimit", "--max-clients", nil, "relay.TestAClientTooManyIsRefusedAndTakesAnother", "how many clients it takes; 10,000"},
		{"LogSeverityScreen", "--log-level", severity, testTypha, "least severe lines of the log"},

		{"ServerMaxFallBehindSecs", "", nil, "", whyBytes},
		{"ServerNewClientFallBehindGracePeriod", "", nil, "", whyBytes},
		{"ServerWriteTimeoutSecs", "", nil, "", "a client that takes nothing costs nothing; one that is dead does not answer ServerPingIntervalSecs' question"},
		{"SnapshotCacheMaxBatchSize", "", nil, "", whyWhole},
		{"ServerMaxMessageSize", "", nil, "", whyWhole},
		{"ServerMinBatchingAgeThresholdSecs", "", nil, "", whyWhole},
		{"ShutdownConnectionDropIntervalMaxSecs", "", nil, "", "clients are sent elsewhere at random moments within ShutdownTimeoutSecs"},
		{"K8sServicePollIntervalSecs", "", nil, "", "the service's endpoints are followed as they change"},
		{"PrometheusGoMetricsEnabled", "", nil, "", "metrics of Go are always among the others"},
		{"PrometheusProcessMetricsEnabled", "", nil, "", "metrics of the process are always among the others"},
		{"PrometheusMetricsCAFile", "", nil, "", "metrics are served by HTTP without TLS"},
		{"PrometheusMetricsCertFile", "", nil, "", "metrics are served by HTTP without TLS"},
		{"PrometheusMetricsKeyFile", "", nil, "", "metrics are served by HTTP without TLS"},
		{"LogFilePath", "", nil, "", whyLog},
		{"LogSeverityFile", "", nil, "", whyLog},
		{"LogSeveritySys", "", nil, "", whyLog},
		{"DebugDisableLogDropping", "", nil, "", "no line of the log is dropped"},
		{"DebugHost", "", nil, "", "there are no profiles at a port"},
		{"DebugPort", "", nil, "", "there are no profiles at a port"},
		{"DebugMemoryProfilePath", "", nil, "", "no profile is written"},
		{"FIPSModeEnabled", "", nil, "", "which cryptography is used is Go's to know (GODEBUG=fips140=on)"},
	}
}

// typha is what upstream's settings of its fan-out proxy mean to `twill relay`: flags, variables that are set, and what has no effect, with the reason.
// File: of settings; it may be missing unless it was named.
func typha(file string) (flags, idle []string, err error) {
	content, err := os.ReadFile(cmp.Or(file, TyphaConfig))
	if err != nil && (file != "" || !errors.Is(err, fs.ErrNotExist)) {
		return nil, nil, fmt.Errorf("read settings: %w", err)
	}
	given, idle := typhaGiven(string(content), os.Environ())
	get := func(name string) string { return given[strings.ToLower(name)] }
	for _, s := range typhaSettings() {
		value := get(s.name)
		if value == "" {
			continue
		}
		if s.test == "" {
			idle = append(idle, fmt.Sprintf("TYPHA_%s has no effect: %s", strings.ToUpper(s.name), s.why))
		}
		if s.form != nil {
			if value, err = s.form(value); err != nil {
				return nil, nil, fmt.Errorf("TYPHA_%s is %q: %w", strings.ToUpper(s.name), get(s.name), err)
			}
		}
		switch {
		case strings.HasPrefix(s.to, "--"):
			flags = append(flags, s.to+"="+value)
		case s.to != "":
			if err := os.Setenv(s.to, value); err != nil {
				return nil, nil, err
			}
		}
	}
	if err := typhaEtcd(get); err != nil {
		return nil, nil, err
	}
	more, err := typhaAddresses(get)
	if err != nil {
		return nil, nil, err
	}
	listen, err := typhaListen(get)
	if err != nil {
		return nil, nil, err
	}
	switch mode := get("ConnectionRebalancingMode"); strings.ToLower(mode) {
	case "", "none":
	case "kubernetes":
		flags = append(flags, "--relay-service="+cmp.Or(get("K8sNamespace"), "kube-system")+"/"+cmp.Or(get("K8sServiceName"), "calico-typha"))
	default:
		return nil, nil, fmt.Errorf("TYPHA_CONNECTIONREBALANCINGMODE is %q: want none or kubernetes", mode)
	}
	slices.Sort(idle)
	return slices.Concat(listen, flags, more), idle, nil
}

// typhaListen is where clients reach it, if something says so.
func typhaListen(get func(name string) string) (flags []string, err error) {
	if get("ServerHost") == "" && get("ServerPort") == "" {
		return nil, nil
	}
	number, err := port(cmp.Or(get("ServerPort"), "5473"))
	if err != nil {
		return nil, fmt.Errorf("TYPHA_SERVERPORT is %q: %w", get("ServerPort"), err)
	}
	return []string{"--listen=" + net.JoinHostPort(get("ServerHost"), number[1:])}, nil
}

// typhaEtcd sets where etcd is, if that is given in the form of an address.
func typhaEtcd(get func(name string) string) error {
	at, scheme := get("EtcdAddr"), cmp.Or(get("EtcdScheme"), "http")
	switch {
	case at == "" || get("EtcdEndpoints") != "":
		return nil
	case scheme != "http" && scheme != "https":
		return fmt.Errorf("TYPHA_ETCDSCHEME is %q: want http or https", scheme)
	}
	return os.Setenv("ETCD_ENDPOINTS", scheme+"://"+at)
}

// typhaAddresses are where health and metrics are served.
func typhaAddresses(get func(name string) string) (flags []string, err error) {
	for _, s := range []struct{ flag, enabled, host, port, atHost, atPort, byDefault string }{
		{"--health=", "HealthEnabled", "HealthHost", "HealthPort", "127.0.0.1", "9098", "true"},
		{"--metrics=", "PrometheusMetricsEnabled", "PrometheusMetricsHost", "PrometheusMetricsPort", "", "9093", "false"},
	} {
		on, err := strconv.ParseBool(strings.ToLower(cmp.Or(get(s.enabled), s.byDefault)))
		if err != nil {
			return nil, fmt.Errorf("TYPHA_%s is %q: want true or false", strings.ToUpper(s.enabled), get(s.enabled))
		}
		number, err := port(cmp.Or(get(s.port), s.atPort))
		switch {
		case err != nil:
			return nil, fmt.Errorf("TYPHA_%s is %q: %w", strings.ToUpper(s.port), get(s.port), err)
		case on:
			flags = append(flags, s.flag+net.JoinHostPort(cmp.Or(get(s.host), s.atHost), number[1:]))
		default:
			flags = append(flags, s.flag)
		}
	}
	return flags, nil
}

// typhaGiven are values by names in small letters: of a file, over which the environment wins, and what is no setting.
func typhaGiven(file string, environ []string) (given map[string]string, idle []string) {
	given = map[string]string{}
	known := map[string]bool{}
	for _, s := range typhaSettings() {
		known[strings.ToLower(s.name)] = true
	}
	take := func(where, name, value string) {
		if !known[strings.ToLower(name)] {
			idle = append(idle, where+name+" has no effect: there is no such setting")
		} else if value != "" {
			given[strings.ToLower(name)] = value
		}
	}
	for _, line := range strings.Split(file, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.ContainsAny(line[:1], "#;[") {
			continue
		}
		name, value, _ := strings.Cut(line, "=")
		take("in the file of settings: ", strings.TrimSpace(name), strings.Trim(strings.TrimSpace(value), `"'`))
	}
	for _, e := range environ {
		name, value, _ := strings.Cut(e, "=")
		rest, ok := strings.CutPrefix(strings.ToUpper(name), "TYPHA_")
		if service := strings.HasPrefix(rest, "SERVICE_") || strings.HasPrefix(rest, "PORT"); ok && !service { // of a Service named typha, which kubelet puts into the environment of pods
			take("TYPHA_", rest, value)
		}
	}
	return given, idle
}

func port(value string) (string, error) {
	n, err := strconv.ParseUint(value, 10, 16)
	if err != nil || n == 0 {
		return "", errors.New("want a port, 1 to 65535")
	}
	return ":" + strconv.FormatUint(n, 10), nil
}

// seconds is a number of them, which may have a fraction, as a flag has it.
func seconds(value string) (string, error) {
	n, err := strconv.ParseFloat(value, 64)
	if err != nil || !(n > 0 && n < 1e6) {
		return "", errors.New("want seconds, more than 0")
	}
	return time.Duration(n * float64(time.Second)).String(), nil
}

// severity is a level as a flag has it.
func severity(value string) (string, error) {
	value = strings.ToLower(value)
	if value == "none" {
		return "panic", nil
	}
	return value, nil
}
