package resources

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/datastore"
)

// FindKey is the key of a resource by the name that users know, whatever the
// key says.
func FindKey(ctx context.Context, s datastore.Store, ref api.Ref) (string, error) {
	u, err := FindStored(ctx, s, ref)
	var taken *takenError
	if err == nil || !errors.Is(err, datastore.ErrNotFound) && !errors.As(err, &taken) {
		return u.Key, err
	}
	snap, err := s.List(ctx, api.KeyPrefix(ref.Kind, ref.Namespace))
	if err != nil {
		return "", err
	}
	for _, u := range snap.Items {
		if st, err := api.DecodeStored(u); err == nil && st.Ref == ref {
			return u.Key, nil
		}
	}
	return "", fmt.Errorf("%s: %w", Short(ref), datastore.ErrNotFound)
}

// CheckTierEmpty refuses to delete a tier that is built in or holds policies.
func CheckTierEmpty(ctx context.Context, s datastore.Store, name string) error {
	switch name {
	case api.TierDefault, api.TierKubeAdmin, api.TierKubeBaseline:
		return fmt.Errorf("tier/%s is built in and cannot be deleted", name)
	}
	var holds []string
	for _, k := range api.Kinds() {
		if !k.Policy {
			continue
		}
		snap, err := s.List(ctx, api.KeyPrefix(k.Kind, ""))
		if err != nil {
			return err
		}
		for _, u := range snap.Items {
			if st, err := api.DecodeStored(u); err == nil && TierName(st.Resource) == name {
				holds = append(holds, Short(st.Ref))
			}
		}
	}
	if len(holds) > 0 {
		return fmt.Errorf("tier/%s holds %s; delete first: %s", name, policies(len(holds)), strings.Join(holds, ", "))
	}
	return nil
}

func policies(n int) string {
	if n == 1 {
		return "1 policy"
	}
	return fmt.Sprintf("%d policies", n)
}
