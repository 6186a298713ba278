package apiserver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/twillnet/twill/internal/datastore/kubestore"
)

// inPath returns an error if one of these names cannot be a part of a path.
func inPath(names ...string) error {
	for _, n := range names {
		if reasons := content.IsDNS1123Subdomain(n); len(reasons) > 0 {
			return fmt.Errorf("%q: %s", n, reasons[0])
		}
	}
	return nil
}

// ask sends a request that is no watch, and returns the answer; an error of the server is one of a datastore.
func ask(ctx context.Context, r *rest.Request) ([]byte, error) {
	bounded, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return kubestore.Answer(ctx, r.Do(bounded))
}

// listed reads an answer that is no watch.
func listed(ctx context.Context, r *rest.Request, into any) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answer := r.Do(ctx)
	if err := answer.Error(); err != nil { // which has the server's reason; that of Raw has none
		return err
	}
	raw, err := answer.Raw()
	if err != nil {
		return err
	}
	return json.Unmarshal(raw, into)
}

// watched passes on the events of a watch, until the server ends it, as it does after a while, or has forgotten what was before (nil); or take fails.
func watched(ctx context.Context, r *rest.Request, take func(event string, object json.RawMessage) error) error {
	body, err := r.Stream(ctx)
	if err != nil {
		return err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var event struct {
			Type   string
			Object json.RawMessage
		}
		if err := dec.Decode(&event); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		if event.Type == "ERROR" {
			return failure(event.Object)
		}
		if err := take(event.Type, event.Object); err != nil {
			return err
		}
	}
}

// failure is what the status of a watch says that went wrong; nil: what was before is forgotten, so that it is to be listed again.
func failure(object json.RawMessage) error {
	var status metav1.Status
	if err := json.Unmarshal(object, &status); err != nil {
		return err
	}
	if err := apierrors.FromObject(&status); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		return err
	}
	return nil
}
