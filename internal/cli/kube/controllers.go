package kube

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/kubecontrollers"
)

// defaultHealth is where health is served: other programs of this host have other ports.
const defaultHealth = "127.0.0.1:9440"

// Daemon is `twill kube-controllers`.
func Daemon(e *conn.Env) *cobra.Command {
	c := &command{e}
	health, namespace := defaultHealth, "kube-system"
	cmd := &cobra.Command{
		Use:   "kube-controllers",
		Short: "Keep a cluster's resources in step with Kubernetes",
		Long: `Deletes what hangs on nodes that left Kubernetes, frees addresses that nobody
has had for a grace period (15 minutes), and gives addresses to Services of type
LoadBalancer, and makes the automatic host endpoints of nodes on which no agent
runs. With Kubernetes' API as the datastore, pools and tiers that are deleted
stay until nothing hangs on them. Policies that Calico before v3.32 stored under
older names get those that users know. With etcd as the datastore, what Kubernetes
says of policies, namespaces, service accounts and pods is kept there, too, and
etcd forgets its history after a while. Run two or more in a cluster: one acts,
by a Lease, and another takes over when it ends. The cluster is reached as kubectl
does it (KUBECONFIG), or by a pod's service account.

The environment is that of Calico's controllers (LOG_LEVEL, ENABLED_CONTROLLERS,
RECONCILER_PERIOD, COMPACTION_PERIOD, SYNC_NODE_LABELS, AUTO_HOST_ENDPOINTS,
HEALTH_ENABLED), and goes before the KubeControllersConfiguration "default",
which may change at any time. Its status says what is in effect; what has no
effect is logged by name.`,
		Example: `  DATASTORE_TYPE=kubernetes twill kube-controllers
  twill kube-controllers --etcd https://10.0.0.1:2379 --kubeconfig /etc/kubernetes/admin.conf
  twill kube controllers --image registry.example/twill:1 | kubectl apply --server-side -f -`,
		Args: console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			conn.IgnoreHangup()
			store, cluster, err := c.Conn.WithCluster()
			if err != nil {
				return err
			}
			env := kubecontrollers.ReadEnvironment(os.LookupEnv)
			if f := cmd.Flags().Lookup("log-level"); f != nil && f.Changed {
				env["LOG_LEVEL"] = f.Value.String()
			}
			host, _ := os.Hostname()
			return kubecontrollers.Run(cmd.Context(), kubecontrollers.Config{
				Store: store, Cluster: cluster, Environment: env, Namespace: namespace,
				ID: fmt.Sprintf("%s_%08x", host, rand.Uint32()), Health: health, Log: c.Log(), Level: &c.Level,
			})
		},
	}
	cmd.Flags().StringVar(&health, "health", health, "address at which health is served over HTTP (/liveness, /readiness); empty: nowhere")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "of the lease")
	cmd.AddCommand(c.checkCmd())
	return cmd
}

// checkTimeout bounds the wait for an answer, which Kubernetes' probes do not wait for long.
const checkTimeout = 5 * time.Second

func (c *command) checkCmd() *cobra.Command {
	health, live := defaultHealth, false
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say whether the controllers of this host are ready, for a probe",
		Long: `Asks the controllers that run here whether they could act: the API server answers,
the settings are known, and no controller has failed at something for 30 s, or has
read nothing for as long; else each of them is named, with its error.
One that waits for another to end is ready, too.

Exit code: 0 ready, 1 not ready, or nothing answers.`,
		Example: "  twill kube-controllers check\n  twill kube-controllers check --live --health 127.0.0.1:9440",
		Args:    console.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			path := "readiness"
			if live {
				path = "liveness"
			}
			return c.check(cmd.Context(), "http://"+health+"/"+path)
		},
	}
	cmd.Flags().StringVar(&health, "health", health, "address at which they serve it")
	cmd.Flags().BoolVar(&live, "live", false, "ask whether they live, rather than whether they are ready")
	return cmd
}

func (c *command) check(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("the controllers do not answer: %w", err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return errors.New(strings.TrimSpace(string(text)))
	}
	_, err = c.Out.Write(text)
	return err
}

func (c *command) controllersCmd() *cobra.Command {
	group, namespace, image, etcd := string(form.V3), "kube-system", "", false
	cmd := &cobra.Command{
		Use:   "controllers",
		Short: "Print the service account of the controllers and its rights, for kubectl apply",
		Long: `Controllers prints a service account and the roles that let "twill kube-controllers"
do what it must, and nothing more; with an image also a Deployment of two
replicas, of which one acts. Nothing is sent anywhere.

Exit code: 0 printed, 1 standard output cannot be written, 2 no such group.`,
		Example: `  twill kube controllers --image registry.example/twill:1 | kubectl apply --server-side -f -
  twill kube controllers --group crd.projectcalico.org/v1 --namespace calico-system > controllers.yaml`,
		Args: console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			g := form.Group(group)
			if g != form.V3 && g != form.V1 {
				return console.Usage("--group %q: want %s or %s", group, form.V3, form.V1)
			}
			if etcd && image != "" {
				return console.Usage("--image: write the Deployment for etcd yourself: it needs ETCD_ENDPOINTS, and what your etcd asks of clients")
			}
			if etcd {
				return documents(c.Out, crds.ControllersWithEtcd(namespace, kubecontrollers.LeaseName))
			}
			all := crds.Controllers(g, namespace, kubecontrollers.LeaseName)
			if image != "" {
				all = append(all, crds.ControllersDeployment(namespace, image, defaultHealth))
			}
			return documents(c.Out, all)
		},
	}
	cmd.Flags().StringVar(&group, "group", group, "of the cluster's resources: projectcalico.org/v3 or crd.projectcalico.org/v1")
	cmd.Flags().StringVarP(&namespace, "namespace", "n", namespace, "of the service account and the Deployment")
	cmd.Flags().BoolVar(&etcd, "with-etcd", false, "for a cluster whose datastore is etcd: they read what Kubernetes has itself, report on it, and write addresses of services")
	cmd.Flags().StringVar(&image, "image", "", "that has twill in it; empty: no Deployment")
	return cmd
}
