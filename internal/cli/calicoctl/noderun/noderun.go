// Package noderun is `calicoctl node run`: what that asks of a container of Calico is asked of Twill's own node.
//
// In: flags as calicoctl has them, and where the datastore is. Out: the variables that calico/node would have, and a call of `twill node install`, which
// starts the node at each boot as Docker would have started the container; with --init-system, whose caller is a unit of its own, of `twill node`, in
// the foreground; with --dryrun the text of that call.
//
// Source of the flags, their defaults and the variables: calicoctl's documentation of node run.
package noderun

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/nodeaddr"
)

// Twill runs one of twill's own commands, and returns its exit code.
type Twill func(ctx context.Context, e *conn.Env, args []string) int

// firstFound is the way to an address that nobody needs to ask for.
const firstFound = "first-found"

// AddFlags adds the flags of node run.
func AddFlags(f *pflag.FlagSet) {
	f.String("name", "", "<NAME> of this node in the datastore (default the host's name)")
	f.String("as", "", "<AS_NUM> of this node")
	f.String("ip", "", "<IP> of this node, or autodetect")
	f.String("ip6", "", "<IP6> of this node, or autodetect")
	f.String("ip-autodetection-method", firstFound, "<IP_AUTODETECTION_METHOD> how to find its IPv4 address")
	f.String("ip6-autodetection-method", firstFound, "<IP6_AUTODETECTION_METHOD> how to find its IPv6 address")
	f.String("log-dir", "/var/log/calico", "<LOG_DIR> where each daemon has a log file")
	f.String("backend", "bird", "<BACKEND> bird or gobgp: BGP; vxlan, none: none")
	f.String("felix-config", "", "<CONFIG> file of settings")
	f.Bool("no-default-ippools", false, "make no pools")
	f.Bool("dryrun", false, "print the command, and run nothing")
	f.Bool("init-system", false, "stay in the foreground, for a unit of systemd's or another init system")
	f.String("node-image", "", "<DOCKER_IMAGE_NAME> has no effect: no container is run, but this binary")
	f.Bool("disable-docker-networking", false, "changes nothing: Docker's networks are served by twill docker-plugin alone")
	f.String("docker-networking-ifprefix", "", "<IFPREFIX> refused: it is of Docker's networks")
	f.Bool("use-docker-networking-container-labels", false, "refused: it is of Docker's networks")
}

// Run does what a call asks for, and returns the exit code of the command of twill's that it ran, which has said why. An error is one of the call.
func Run(ctx context.Context, e *conn.Env, f *pflag.FlagSet, twill Twill) (int, error) {
	env, err := variables(f)
	if err != nil {
		return 1, err
	}
	where, err := datastoreOf(&e.Conn)
	if err != nil {
		return 1, err
	}
	env = append(where, env...)
	foreground, _ := f.GetBool("init-system") // it is one
	if dry, _ := f.GetBool("dryrun"); dry {
		dryRun(e, env, foreground)
		return 0, nil
	}
	if f.Changed("node-image") {
		fmt.Fprintln(e.Err, "--node-image has no effect: no container is run, but this binary")
	}
	if !foreground {
		return twill(ctx, e, install(env)), nil
	}
	for _, line := range env {
		name, value, _ := strings.Cut(line, "=")
		if err := os.Setenv(name, value); err != nil {
			return 1, fmt.Errorf("%s: %w", name, err)
		}
	}
	return twill(ctx, e, []string{"node"}), nil
}

// install is the call that has systemd run the node with these variables.
func install(env []string) []string {
	args := []string{"node", "install"}
	for _, line := range env {
		args = append(args, "--env="+line)
	}
	return args
}

// secrets are variables whose values are not printed.
var secrets = []string{"ETCD_PASSWORD", "K8S_API_TOKEN"}

// dryRun prints what would be run, and how it is ended.
func dryRun(e *conn.Env, env []string, foreground bool) {
	env = slices.Clone(env)
	for i, line := range env {
		if name, _, _ := strings.Cut(line, "="); slices.Contains(secrets, name) {
			env[i] = name + "=…"
		}
	}
	words, stop := append([]string{"twill"}, install(env)...), "systemctl stop twill-node        # for good: twill node uninstall"
	if foreground {
		words, stop = slices.Concat([]string{"env"}, env, []string{"twill", "node"}), "its unit's, or SIGTERM"
	}
	for i, word := range words {
		if strings.ContainsAny(word, " '\"$*?[]()|&;<>\\`") {
			words[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	fmt.Fprintf(e.Out, "Use the following command to start the node:\n\n%s\n\n", strings.Join(words, " "))
	if !foreground {
		fmt.Fprint(e.Out, "If you run the node in an init system of your own, use the --init-system flag\nto display the appropriate command.\n")
	}
	fmt.Fprintf(e.Out, "Use the following command to stop the node:\n\n%s\n\n", stop)
}

// variables are those that calico/node would have of the flags.
func variables(f *pflag.FlagSet) (env []string, err error) {
	text := func(name string) string { v, _ := f.GetString(name); return v } // it is one
	for _, name := range []string{"docker-networking-ifprefix", "use-docker-networking-container-labels"} {
		if f.Changed(name) {
			return nil, fmt.Errorf("Error executing command: --%s is of Docker's networks, which twill docker-plugin serves: leave it out", name)
		}
	}
	add := func(name, value string) {
		if value != "" {
			env = append(env, name+"="+value)
		}
	}
	add("NODENAME", text("name"))
	backend := text("backend")
	switch backend {
	case "gobgp":
		backend = "bird" // BGP, by whatever program: Twill's own is GoBGP
	case "bird", "vxlan", "none":
	default:
		return nil, fmt.Errorf("Error executing command: unknown backend '%s'", backend)
	}
	add("CALICO_NETWORKING_BACKEND", backend)
	if pools, _ := f.GetBool("no-default-ippools"); pools {
		add("NO_DEFAULT_POOLS", "true")
	}
	if err := addresses(text, add); err != nil {
		return nil, fmt.Errorf("Error executing command: %w", err)
	}
	add("TWILL_LOG_DIR", text("log-dir"))
	add("TWILL_CONFIG", text("felix-config"))
	add(conn.OrderVariable, conn.LocalLast) // as calico/node has it
	return env, nil
}

// addresses adds the variables of the node's addresses and AS number.
func addresses(text func(string) string, add func(name, value string)) error {
	for _, a := range []struct {
		nodeaddr.Family
		flag, name string
		is         func(netip.Addr) bool
	}{{nodeaddr.V4, "ip", "IP", netip.Addr.Is4}, {nodeaddr.V6, "ip6", "IP6", netip.Addr.Is6}} {
		if addr, err := netip.ParseAddr(text(a.flag)); err == nil && !a.is(addr) {
			return fmt.Errorf("--%s is wrong IP version", a.flag)
		}
		method := text(a.flag + "-autodetection-method")
		if _, err := nodeaddr.ParseWant(a.Family, text(a.flag), method); err != nil {
			return err
		}
		add(a.name, text(a.flag))
		if method != firstFound {
			add(a.name+"_AUTODETECTION_METHOD", method)
		}
	}
	as := text("as")
	if as == "" {
		return nil
	}
	var number api.ASNumber
	if err := number.UnmarshalJSON([]byte(`"` + as + `"`)); err != nil {
		return fmt.Errorf("--as is %q: %w", as, err)
	}
	add("AS", fmt.Sprint(uint32(number)))
	return nil
}

// datastoreOf are the variables by which the node finds the datastore that this call is about, by whatever means it was named. None: the node keeps
// one of its own.
func datastoreOf(c *conn.Connection) ([]string, error) {
	kubernetes, err := c.Kubernetes() // reads the file
	if err != nil {
		return nil, fmt.Errorf("Error executing command: invalid config file: %w", err)
	}
	cfg, err := c.Config()
	if err != nil {
		return nil, err
	}
	if len(cfg.CertPEM)+len(cfg.KeyPEM)+len(cfg.CAPEM) > 0 || cfg.Inline != "" {
		return nil, errors.New("Error executing command: a certificate, key or kubeconfig is given as text: write it into a file, and name that")
	}
	if kubernetes {
		return lines([][2]string{
			{"DATASTORE_TYPE", "kubernetes"},
			{"KUBECONFIG", cmp.Or(cfg.Kubeconfig, os.Getenv("KUBECONFIG"))},
			{"K8S_CURRENT_CONTEXT", cfg.Context},
			{"K8S_API_ENDPOINT", cfg.Server},
			{"K8S_API_TOKEN", cfg.Token},
			{"K8S_CA_FILE", cfg.CAFile},
			{"K8S_CERT_FILE", cfg.CertFile},
			{"K8S_KEY_FILE", cfg.KeyFile},
		}), nil
	}
	return etcdLines(cfg), nil
}

func etcdLines(cfg datastore.Config) []string {
	if slices.Equal(cfg.Endpoints, []string{conn.DefaultEndpoint}) && cfg.DiscoverySRV == "" {
		return nil
	}
	endpoints := strings.Join(cfg.Endpoints, ",")
	if cfg.DiscoverySRV != "" {
		endpoints = ""
	}
	return lines([][2]string{
		{"ETCD_ENDPOINTS", endpoints},
		{"ETCD_DISCOVERY_SRV", cfg.DiscoverySRV},
		{"ETCD_CA_CERT_FILE", cfg.CAFile},
		{"ETCD_CERT_FILE", cfg.CertFile},
		{"ETCD_KEY_FILE", cfg.KeyFile},
		{"ETCD_USERNAME", cfg.Username},
		{"ETCD_PASSWORD", cfg.Password},
	})
}

// lines are NAME=value of those that have one.
func lines(of [][2]string) (out []string) {
	for _, v := range of {
		if v[1] != "" {
			out = append(out, v[0]+"="+v[1])
		}
	}
	return out
}
