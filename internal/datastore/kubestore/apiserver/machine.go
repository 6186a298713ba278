package apiserver

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/twillnet/twill/internal/datastore/kubestore"
)

// HasMachine reports whether KubeVirt has a virtual machine of that name: a VirtualMachine, or a VirtualMachineInstance without one. That it
// has none is only said by a server that serves both kinds: else it is an error, and nothing is known.
func (c *Client) HasMachine(ctx context.Context, namespace, name string) (bool, error) {
	for _, part := range []string{namespace, name} { // they become a path
		if reasons := content.IsDNS1123Subdomain(part); len(reasons) > 0 {
			return false, fmt.Errorf("virtual machine %s/%s: %q: %s", namespace, name, part, reasons[0])
		}
	}
	for _, plural := range []string{"virtualmachines", "virtualmachineinstances"} {
		bounded, cancel := context.WithTimeout(ctx, timeout)
		result := c.client.Get().AbsPath("/apis/kubevirt.io/v1/namespaces", namespace, plural, name).SetHeader("Accept", mediaJSON).Do(bounded)
		cancel()
		if !isGone(result.Error(), name) {
			_, err := kubestore.Answer(ctx, result)
			return err == nil, err
		}
	}
	return false, nil
}

// isGone reports whether the server says that there is no object of a name. Of a kind that it does not serve it says no name.
func isGone(err error, name string) bool {
	var status apierrors.APIStatus
	if !apierrors.IsNotFound(err) || !errors.As(err, &status) {
		return false
	}
	details := status.Status().Details
	return details != nil && details.Name == name
}
