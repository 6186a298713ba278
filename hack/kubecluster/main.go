// Command kubecluster runs a Kubernetes cluster on this machine (package kubecluster).
//
// In: up or down, or netpol, Kubernetes' own tests of NetworkPolicies on one that is up. Out: what was done, and how to use it. Its other arguments are for itself: it is also the first process of each machine
// of the cluster, and its etcd.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/twillnet/twill/internal/kubecluster"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "machine" {
		os.Exit(kubecluster.Machine(os.Args[2]))
	}
	if len(os.Args) == 3 && os.Args[1] == "etcd" {
		os.Exit(kubecluster.Etcd(os.Args[2]))
	}
	if err := command(); err != nil {
		fmt.Fprintln(os.Stderr, "kubecluster:", err)
		os.Exit(1)
	}
}

func command() error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	c := &kubecluster.Cluster{Dir: kubecluster.DefaultDir, Exe: exe, Out: os.Stdout} // links and cgroups have one name each: there is one cluster
	flag.StringVar(&c.Twill, "twill", "bin/twill", "the binary that nodes run")
	flag.StringVar(&c.Probe, "probe", filepath.Join(filepath.Dir(exe), "probe"), "the program of hack/kubecluster/probe")
	flag.IntVar(&c.Workers, "nodes", 3, "how many nodes it has")
	focus := flag.String("focus", "", "a regular expression: the cases of netpol that are run; sample: a fixed part of them; empty: all")
	flag.Parse()
	if c.Twill, err = filepath.Abs(c.Twill); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	switch flag.Arg(0) {
	case "up":
		if err := c.Up(ctx); err != nil {
			return fmt.Errorf("%w\nWhat is there, logs among it, is in %s; make kube-down removes it", err, c.Dir)
		}
		fmt.Printf(guide, c.Kubeconfig(), c.Kubectl(), kubecluster.ProbeImage, c.Dir, c.Twill)
		return nil
	case "netpol":
		if *focus == "sample" {
			*focus = kubecluster.NetpolSample
		}
		if err := c.NetworkPolicies(ctx, *focus); err != nil {
			return fmt.Errorf("%w\nThe cluster stays up, its logs are in %s; make kube-down removes it", err, c.Dir)
		}
		return nil
	case "down":
		return c.Down()
	}
	return fmt.Errorf("%q: want up, down or netpol", flag.Arg(0))
}

const guide = `
export KUBECONFIG=%[1]s; alias kubectl=%[2]s
kubectl get nodes,pods -A -o wide
kubectl create deployment web --image=%[3]s --replicas=3 -- /probe serve && kubectl expose deployment web --port=80 --target-port=8080
nsenter -a -t $(cat %[4]s/n1/pid) %[5]s status      # on the node n1; make kube-down ends all
`
