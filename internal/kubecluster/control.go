package kubecluster

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/twillnet/twill/internal/datastore/member"
	"github.com/twillnet/twill/internal/datastore/member/certs"
)

// Accounts of the cluster's own programs, as Kubernetes' built-in roles have them, by the name of their kubeconfig.
const (
	admin      = "admin"
	controller = "controllers"
	scheduler  = "scheduler"
	proxy      = "proxy"
	toKubelets = "apiserver-kubelet-client" // the API server's name to kubelets
)

// startControl starts the control plane, and returns when the API server is ready.
func (c *Cluster) startControl(ctx context.Context) error {
	names := []string{control.String(), "10.96.0.1", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	if _, err := certs.Make(certs.Config{Dir: c.in("certs"), Members: []certs.Host{{Name: "apiserver", Names: names}}, Clients: []string{toKubelets}}); err != nil {
		return err
	}
	if err := c.makeAccounts(); err != nil {
		return err
	}
	if err := c.startMachine(machine{Name: "control", Services: c.controlServices()}); err != nil {
		return err
	}
	return await(ctx, func(ctx context.Context) error {
		_, err := c.Run(ctx, "get", "--raw", "/readyz")
		return err
	})
}

// makeAccounts writes a token and a kubeconfig for each.
func (c *Cluster) makeAccounts() error {
	accounts := map[string]string{
		admin: "admin,admin,system:masters", controller: "system:kube-controller-manager,controllers,", scheduler: "system:kube-scheduler,scheduler,", proxy: "system:kube-proxy,proxy,",
	}
	for _, n := range c.workers() {
		accounts[n] = "system:node:" + n + "," + n + ",system:nodes"
	}
	var tokens strings.Builder
	var errs []error
	for name, who := range accounts {
		token := rand.Text()
		fmt.Fprintf(&tokens, "%s,%s\n", token, strings.TrimSuffix(who, ","))
		file := c.in(name + ".kubeconfig")
		if name == admin {
			file = c.Kubeconfig()
		}
		errs = append(errs, c.writeKubeconfig(file, token))
	}
	return errors.Join(append(errs, os.WriteFile(c.in("tokens.csv"), []byte(tokens.String()), 0o600))...)
}

func server() string { return "https://" + netip.AddrPortFrom(control, apiPort).String() }

// writeKubeconfig has the authority's certificate in it: a node does not see this machine's files.
func (c *Cluster) writeKubeconfig(file, token string) error {
	ca, err := os.ReadFile(c.in("certs", "ca.crt"))
	if err != nil {
		return err
	}
	return os.WriteFile(file, fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: twill-kube, cluster: {server: %q, certificate-authority-data: %q}}]
users: [{name: user, user: {token: %q}}]
contexts: [{name: twill-kube, context: {cluster: twill-kube, user: user}}]
current-context: twill-kube
`, server(), base64(ca), token), 0o600)
}

func (c *Cluster) etcd() string { return "unix://" + filepath.Join(c.in("etcd"), "sock") }

func (c *Cluster) controlServices() []service {
	in := func(name string) string { return c.in(name + ".kubeconfig") }
	cert, key := c.in("certs", "apiserver", "server.crt"), c.in("certs", "apiserver", "server.key")
	client := c.in("certs", toKubelets, "client")
	return []service{
		{"etcd", []string{c.Exe, etcdCommand, c.in("etcd")}},
		{"kube-apiserver", []string{
			c.api.Path("kube-apiserver"), "--etcd-servers=" + c.etcd(), "--bind-address=0.0.0.0", fmt.Sprint("--secure-port=", apiPort), "--advertise-address=" + control.String(),
			"--tls-cert-file=" + cert, "--tls-private-key-file=" + key, "--cert-dir=" + c.in("certs"),
			"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + cert, "--service-account-signing-key-file=" + key,
			"--token-auth-file=" + c.in("tokens.csv"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
			"--kubelet-client-certificate=" + client + ".crt", "--kubelet-client-key=" + client + ".key", "--kubelet-preferred-address-types=InternalIP",
			"--service-cluster-ip-range=" + serviceRange, "--allow-privileged=true",
		}},
		{"kube-controller-manager", []string{
			c.api.Path("kube-controller-manager"), "--kubeconfig=" + in(controller), "--authentication-kubeconfig=" + in(controller), "--authorization-kubeconfig=" + in(controller),
			"--secure-port=0", "--cert-dir=" + c.in("certs"), "--leader-elect=false", "--use-service-account-credentials=true",
			"--service-account-private-key-file=" + key, "--root-ca-file=" + c.in("certs", "ca.crt"), "--service-cluster-ip-range=" + serviceRange,
		}},
		{"kube-scheduler", []string{
			c.nodes.Path("kube-scheduler"), "--kubeconfig=" + in(scheduler), "--authentication-kubeconfig=" + in(scheduler), "--authorization-kubeconfig=" + in(scheduler),
			"--secure-port=0", "--cert-dir=" + c.in("certs"), "--leader-elect=false",
		}},
	}
}

// Run is kubectl, as an administrator, with its output.
func (c *Cluster) Run(ctx context.Context, args ...string) (string, error) {
	return c.kubectl(ctx, "", args...)
}

// Apply applies documents of YAML.
func (c *Cluster) Apply(ctx context.Context, manifests string) error {
	_, err := c.kubectl(ctx, manifests, "apply", "--server-side", "-f", "-")
	return err
}

func (c *Cluster) kubectl(ctx context.Context, in string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.Kubectl(), append([]string{"--kubeconfig=" + c.Kubeconfig(), "--cache-dir=" + c.in("cache")}, args...)...)
	return run(cmd, in)
}

// run runs a program, with what it says in its error.
func run(cmd *exec.Cmd, in string) (string, error) {
	var out, complaint strings.Builder
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(in), &out, &complaint
	if err := cmd.Run(); err != nil {
		return out.String(), fmt.Errorf("%s %s: %w: %s", filepath.Base(cmd.Path), strings.Join(cmd.Args[1:], " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

const etcdCommand = "etcd"

// Etcd is the etcd of a cluster, with its data in dir, until it is told to end.
func Etcd(dir string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	m, err := member.Start(ctx, member.Config{Dir: dir, ListenClient: []string{"unix://" + filepath.Join(dir, "sock")}, Retention: -1, StartTimeout: startTimeout})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer m.Close()
	select {
	case <-ctx.Done():
	case <-m.Done():
	}
	return 0
}
