// Command kube-controller-manager runs Kubernetes' own controllers, as upstream builds it.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // its client's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // its version as a metric
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
)

func main() { os.Exit(cli.Run(app.NewControllerManagerCommand())) }
