package node_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestInstallReadsTheEnvironmentOfUpstreamsInstaller says what would be done, and what was not understood.
func TestInstallReadsTheEnvironmentOfUpstreamsInstaller(t *testing.T) {
	file := filepath.Join(t.TempDir(), "net.conflist")
	if err := os.WriteFile(file, []byte(`{"cniVersion":"1.0.0","name":"of-a-file","plugins":[{"type":"calico"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	const none = "SKIP_CNI_BINARIES=twill,twill-ipam,calico,calico-ipam"
	for _, tt := range []struct {
		name string
		env  []string
		code int
		want []string // in what is said and in the network; with a !, not
	}{
		{"nothing", nil, 0, []string{"10-twill.conflist", `"name": "twill"`, `"mtu": 0`, "write BIN/twill\n", "write BIN/twill-ipam\n", "write BIN/calico-ipam\n", "write BIN/calico\n"}},
		{"the network's file and its MTU", []string{none, "CNI_CONF_NAME=10-calico.conflist", "CNI_MTU=1400"}, 0, []string{"10-calico.conflist", `"mtu": 1400`}},
		{"a network", []string{none, `CNI_NETWORK_CONFIG={"cniVersion":"1.0.0","name":"of-a-variable","plugins":[{"type":"calico"}]}`}, 0, []string{"of-a-variable"}},
		{"a network of upstream's manifest", []string{none, "CNI_MTU=1400", "KUBERNETES_NODE_NAME=n7", `CNI_NETWORK_CONFIG={"cniVersion":"1.0.0","name":"of-a-manifest","plugins":[{"type":"calico","log_level":"info","datastore_type":"kubernetes","nodename":"__KUBERNETES_NODE_NAME__","mtu":__CNI_MTU__,"ipam":{"type":"calico-ipam"},"policy":{"type":"k8s"},"kubernetes":{"kubeconfig":"__KUBECONFIG_FILEPATH__"}}]}`}, 0, []string{`"mtu":1400`, `"nodename":"n7"`, "!__", "no effect"}},
		{"a file is nearer than a variable", []string{none, "CNI_NETWORK_CONFIG={}", "CNI_NETWORK_CONFIG_FILE=" + file}, 0, []string{"of-a-file"}},
		{"what to leave out", []string{"SKIP_CNI_BINARIES=calico-ipam,twill"}, 0, []string{"write BIN/twill-ipam\n", "write BIN/calico\n", "!write BIN/calico-ipam\n", "!write BIN/twill\n"}},
		{"what is there stays", []string{"UPDATE_CNI_BINARIES=false"}, 0, []string{"kept BIN/calico,", "write BIN/calico-ipam\n", "!write BIN/calico\n"}},
		{"a network that is none", []string{"CNI_NETWORK_CONFIG=net"}, 1, []string{"the network cannot be used"}},
		{"a file that is not there", []string{"CNI_NETWORK_CONFIG_FILE=" + file + ".not"}, 1, []string{"no such file"}},
		{"an MTU that is no number", []string{"CNI_MTU=large"}, 2, []string{`CNI_MTU is "large"`}},
		{"a wish that is neither", []string{"UPDATE_CNI_BINARIES=perhaps"}, 2, []string{`UPDATE_CNI_BINARIES is "perhaps"`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			bin, conf := filepath.Join(dir, "bin"), filepath.Join(dir, "net.d")
			for _, e := range []string{"CNI_CONF_NAME", "CNI_NETWORK_CONFIG", "CNI_NETWORK_CONFIG_FILE", "CNI_MTU", "SKIP_CNI_BINARIES", "UPDATE_CNI_BINARIES"} {
				t.Setenv(e, "")
			}
			t.Setenv("CNI_NET_DIR", conf)
			for _, e := range tt.env {
				name, value, _ := strings.Cut(e, "=")
				t.Setenv(name, value)
			}
			if err := os.MkdirAll(bin, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(bin, "calico"), []byte("upstream's"), 0o700); err != nil {
				t.Fatal(err)
			}
			out := newCLI(t).Want(tt.code, "", "cni", "install", "--bin-dir", bin)
			networks, err := filepath.Glob(filepath.Join(conf, "*"))
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range networks {
				text, err := os.ReadFile(n)
				if err != nil {
					t.Fatal(err)
				}
				out += n + "\n" + string(text)
			}
			out = strings.ReplaceAll(out, bin, "BIN")
			for _, w := range tt.want {
				w, not := strings.CutPrefix(w, "!")
				if strings.Contains(out, w) == not {
					t.Errorf("%q in it: %v\n%s", w, !not, out)
				}
			}
		})
	}
}
