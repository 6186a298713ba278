// Command kube-apiserver is Kubernetes' API server, as upstream builds it.
package main

import (
	"os"
	_ "time/tzdata" // CronJobs' time zones, without files of the host

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // its client's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // its version as a metric
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
)

func main() { os.Exit(cli.Run(app.NewAPIServerCommand())) }
