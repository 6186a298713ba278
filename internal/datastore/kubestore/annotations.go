package kubestore

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
)

// What KubeVirt calls things. Its API serves version v1 of both kinds.
const (
	machineGroup    = "kubevirt.io/"
	machineVersion  = machineGroup + "v1"
	kindInstance    = "VirtualMachineInstance"
	kindMachine     = "VirtualMachine"
	labelMigration  = machineGroup + "migrationJobUID"
	pluralInstances = "virtualmachineinstances"
)

// Annotations implements [datastore.Annotated].
func (s *Store) Annotations(ctx context.Context, namespace, pod string) (out datastore.Annotations, err error) {
	if err := pathParts("pod", namespace, pod); err != nil {
		return out, err
	}
	of := "/api/v1/namespaces/" + namespace
	done := make(chan error, 1)
	go func() {
		meta, err := s.metadata(ctx, of)
		out.Namespace = meta.Annotations
		done <- wrap("get namespace", namespace, err)
	}()
	ofPod, err := s.metadata(ctx, of+"/pods/"+pod)
	other := <-done
	out.Pod, out.Instance = ofPod.Annotations, instanceOf(ofPod)
	return out, cmp.Or(wrap("get pod", namespace+"/"+pod, err), other)
}

// Instance implements [datastore.Hosting].
func (s *Store) Instance(ctx context.Context, namespace, name string) (datastore.Running, error) {
	what := "virtual machine instance"
	if err := pathParts(what, namespace, name); err != nil {
		return datastore.Running{}, err
	}
	raw, err := s.get(ctx, "/apis/"+machineVersion+"/namespaces/"+namespace+"/"+pluralInstances+"/"+name, mediaJSON, nil)
	if err != nil {
		return datastore.Running{}, wrap("get "+what, namespace+"/"+name, err)
	}
	var o struct {
		Metadata metav1.ObjectMeta
		Status   struct{ NodeName string }
	}
	if err := json.Unmarshal(raw, &o); err != nil {
		return datastore.Running{}, fmt.Errorf("%s %s/%s: %w", what, namespace, name, err)
	}
	return datastore.Running{UID: string(o.Metadata.UID), Machine: string(ownerOf(o.Metadata, kindMachine).UID), Node: o.Status.NodeName}, nil
}

// instanceOf is the instance that a pod says that it runs: one that is its controller.
func instanceOf(pod metav1.ObjectMeta) *datastore.Instance {
	owner := ownerOf(pod, kindInstance)
	if owner.Name == "" || owner.Controller == nil || !*owner.Controller {
		return nil
	}
	return &datastore.Instance{Name: owner.Name, UID: string(owner.UID), Migration: pod.Labels[labelMigration]}
}

// ownerOf is an object's owner of a kind of KubeVirt's; the zero value: it has none.
func ownerOf(o metav1.ObjectMeta, kind string) metav1.OwnerReference {
	for _, owner := range o.OwnerReferences {
		if strings.HasPrefix(owner.APIVersion, machineGroup) && owner.Kind == kind {
			return owner
		}
	}
	return metav1.OwnerReference{}
}

// pathParts refuses names that are to become a path and cannot be names.
func pathParts(kind, namespace, name string) error {
	for _, part := range []string{namespace, name} {
		if reasons := content.IsDNS1123Subdomain(part); len(reasons) > 0 {
			return fmt.Errorf("%s %s/%s: %q: %s", kind, namespace, name, part, reasons[0])
		}
	}
	return nil
}

// metadata is that of one object.
func (s *Store) metadata(ctx context.Context, path string) (metav1.ObjectMeta, error) {
	raw, err := s.get(ctx, path, form.MetadataOnly, nil)
	if err != nil {
		return metav1.ObjectMeta{}, err
	}
	return form.Metadata(raw)
}
