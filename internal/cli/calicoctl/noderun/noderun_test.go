package noderun_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/twillnet/twill/internal/cli/calicoctl/noderun"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/conn"
)

// call is one of calicoctl node run, and what came of it.
type call struct {
	code     int
	err      error
	out, log string
	args     []string // of the command of twill's; nil: none was run
	env      []string // that it saw
}

// run calls it, where etcd is at 192.0.2.9 unless the environment names it.
func run(t *testing.T, answer int, args string) (c call) {
	t.Helper()
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	noderun.AddFlags(f)
	if err := f.Parse(strings.Fields(args)); err != nil {
		t.Fatal(err)
	}
	var out, log bytes.Buffer
	e := &conn.Env{}
	e.Out, e.Err = &out, &log
	c.code, c.err = noderun.Run(t.Context(), e, f, func(_ context.Context, _ *conn.Env, args []string) int {
		c.args, c.env = args, os.Environ()
		return answer
	})
	c.out, c.log = out.String(), log.String()
	return c
}

// plain are variables that each call has.
const plain = "CALICO_NETWORKING_BACKEND=bird TWILL_LOG_DIR=/var/log/calico TWILL_SETTINGS_ORDER=local-last"

func TestFlagsBecomeVariablesOfTheInstalledNode(t *testing.T) {
	for _, tt := range []struct{ name, args, want, err string }{
		{"nothing", "", "ETCD_ENDPOINTS=http://192.0.2.9:2379 " + plain, ""},
		{
			"who and where", "--name=h1 --as=1.10 --ip=192.0.2.1 --ip6=autodetect --ip-autodetection-method=interface=eth.* --ip6-autodetection-method=can-reach=2001:db8::1",
			"NODENAME=h1 CALICO_NETWORKING_BACKEND=bird IP=192.0.2.1 IP_AUTODETECTION_METHOD=interface=eth.* IP6=autodetect IP6_AUTODETECTION_METHOD=can-reach=2001:db8::1 AS=65546 TWILL_LOG_DIR=/var/log/calico", "",
		},
		{"no pools, and other places", "--no-default-ippools --log-dir=/var/log/x --felix-config=/etc/calico/felix.cfg --backend=none", "CALICO_NETWORKING_BACKEND=none NO_DEFAULT_POOLS=true TWILL_LOG_DIR=/var/log/x TWILL_CONFIG=/etc/calico/felix.cfg", ""},
		{"by VXLAN", "--backend=vxlan", "CALICO_NETWORKING_BACKEND=vxlan", ""},
		{"by GoBGP", "--backend=gobgp", "CALICO_NETWORKING_BACKEND=bird", ""},
		{"what is so anyway", "--disable-docker-networking", plain, ""},
		{"an unknown backend", "--backend=quagga", "", "Error executing command: unknown backend 'quagga'"},
		{"another family", "--ip=2001:db8::1", "", "Error executing command: --ip is wrong IP version"},
		{"no address", "--ip6=x", "", "Error executing command: "},
		{"no method", "--ip-autodetection-method=best", "", "want first-found, can-reach="},
		{"no AS number", "--as=many", "", "--as is \"many\": AS number"},
		{"Docker's networks", "--docker-networking-ifprefix=cali", "", "--docker-networking-ifprefix is of Docker's networks, which twill docker-plugin serves"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.ClearStoreEnv(t)
			t.Setenv("ETCD_ENDPOINTS", "http://192.0.2.9:2379")
			c := run(t, 0, tt.args)
			if tt.err != "" {
				if c.err == nil || !strings.Contains(c.err.Error(), tt.err) || c.args != nil {
					t.Errorf("error %v, want %q; ran %q", c.err, tt.err, c.args)
				}
				return
			}
			if c.err != nil || c.code != 0 || len(c.args) < 2 || strings.Join(c.args[:2], " ") != "node install" {
				t.Fatalf("code %d, error %v, ran %q", c.code, c.err, c.args)
			}
			for want := range strings.FieldsSeq(tt.want) {
				if !slices.Contains(c.args, "--env="+want) {
					t.Errorf("%s is not in %q", want, c.args)
				}
			}
			for _, name := range []string{"IP=", "AS=", "NODENAME=", "NO_DEFAULT_POOLS="} {
				if is := slices.ContainsFunc(c.args, func(a string) bool { return strings.HasPrefix(a, "--env="+name) }); is != strings.Contains(" "+tt.want, " "+name) {
					t.Errorf("%s in %q is %t", name, c.args, is)
				}
			}
		})
	}
}

func TestWhatTwillSaysIsTheExitCode(t *testing.T) {
	clitest.ClearStoreEnv(t)
	if c := run(t, 1, "--node-image=calico/node"); c.code != 1 || c.err != nil || !strings.Contains(c.log, "--node-image has no effect: no container is run") {
		t.Errorf("%+v", c)
	}
}

// TestAnInitSystemHasItInTheForeground with the variables in its environment.
func TestAnInitSystemHasItInTheForeground(t *testing.T) {
	clitest.ClearStoreEnv(t)
	for _, name := range []string{"IP", "CALICO_NETWORKING_BACKEND", "TWILL_LOG_DIR", conn.OrderVariable} {
		t.Setenv(name, "") // and is given back
	}
	c := run(t, 0, "--init-system --ip=192.0.2.1")
	if c.err != nil || strings.Join(c.args, " ") != "node" {
		t.Fatalf("error %v, ran %q", c.err, c.args)
	}
	for want := range strings.FieldsSeq(plain + " IP=192.0.2.1") {
		if !slices.Contains(c.env, want) {
			t.Errorf("%s is not in its environment", want)
		}
	}
}

func TestADryRunPrintsTheCommand(t *testing.T) {
	clitest.ClearStoreEnv(t)
	t.Setenv("ETCD_ENDPOINTS", "http://192.0.2.9:2379")
	t.Setenv("ETCD_USERNAME", "calico")
	t.Setenv("ETCD_PASSWORD", "sesame")
	for args, want := range map[string][]string{
		"--dryrun --ip-autodetection-method=interface=eth.*": {
			"start the node:\n\ntwill node install --env=ETCD_ENDPOINTS=http://192.0.2.9:2379 --env=ETCD_USERNAME=calico --env=ETCD_PASSWORD=… ", "'--env=IP_AUTODETECTION_METHOD=interface=eth.*'", "--init-system flag", "systemctl stop twill-node",
		},
		"--dryrun --init-system": {"start the node:\n\nenv ETCD_ENDPOINTS=http://192.0.2.9:2379 ", " twill node\n", "SIGTERM"},
	} {
		c := run(t, 0, args)
		if c.err != nil || c.args != nil || strings.Contains(c.out, "sesame") {
			t.Errorf("%s: %+v", args, c)
		}
		for _, part := range want {
			if !strings.Contains(c.out, part) {
				t.Errorf("%s: %q is not in\n%s", args, part, c.out)
			}
		}
	}
}

// TestTheNodeReadsTheDatastoreOfTheCall, by whatever means that was named.
func TestTheNodeReadsTheDatastoreOfTheCall(t *testing.T) {
	for _, tt := range []struct {
		name string
		env  [][2]string
		want string // part of what is run; empty: the node keeps a datastore of its own
		err  string
	}{
		{"nothing is named", nil, "", ""},
		{"etcd, with certificates", [][2]string{{"ETCD_ENDPOINTS", "https://a:1,https://b:2"}, {"ETCD_CA_CERT_FILE", "/ca"}, {"ETCD_CERT_FILE", "/c"}, {"ETCD_KEY_FILE", "/k"}}, "--env=ETCD_ENDPOINTS=https://a:1,https://b:2 --env=ETCD_CA_CERT_FILE=/ca --env=ETCD_CERT_FILE=/c --env=ETCD_KEY_FILE=/k ", ""},
		{"by discovery", [][2]string{{"ETCD_DISCOVERY_SRV", "example.com"}}, "install --env=ETCD_DISCOVERY_SRV=example.com ", ""},
		{"Kubernetes", [][2]string{{"DATASTORE_TYPE", "kubernetes"}, {"KUBECONFIG", "/etc/k.conf"}}, "install --env=DATASTORE_TYPE=kubernetes --env=KUBECONFIG=/etc/k.conf ", ""},
		{"a key as text", [][2]string{{"ETCD_ENDPOINTS", "https://a:1"}, {"ETCD_KEY", "PEM"}, {"ETCD_CERT", "PEM"}}, "", "is given as text: write it into a file"},
		{"an unknown type", [][2]string{{"DATASTORE_TYPE", "consul"}}, "", `DATASTORE_TYPE is "consul"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.ClearStoreEnv(t)
			t.Setenv("HOME", filepath.Join(t.TempDir(), "none"))
			for _, v := range tt.env {
				t.Setenv(v[0], v[1])
			}
			c := run(t, 0, "")
			got := strings.Join(c.args, " ")
			switch {
			case tt.err != "":
				if c.err == nil || !strings.Contains(c.err.Error(), tt.err) {
					t.Errorf("error %v, want %q", c.err, tt.err)
				}
			case c.err != nil || !strings.Contains(got, tt.want) || tt.want == "" && strings.Contains(got, "ETCD_"):
				t.Errorf("error %v, ran %q, want %q", c.err, got, tt.want)
			}
		})
	}
}
