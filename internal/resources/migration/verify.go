package migration

import (
	"context"
	"fmt"
	"time"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/ipam"
	"github.com/twillnet/twill/internal/resources"
)

// Verified is what was found when all was read again.
type Verified struct {
	Equal     int `json:"equal"`     // entries that the store holds as they are
	Addresses int `json:"addresses"` // problems of address management, as `twill ipam check` names them
}

// grace is the age below which an address is nobody's leak yet, as of `twill ipam check`.
const grace = 15 * time.Minute

// Verify reads a store again after an import, and returns an error that names what is not as the entries say: what was lost, or what somebody else has written meanwhile.
// Done is called after each entry.
func Verify(ctx context.Context, s datastore.Store, es []Entry, done func()) (v Verified, err error) {
	plan, err := Prepare(ctx, s, es, done)
	if err != nil {
		return v, fmt.Errorf("the import, read again, is not as it was written: %w", err)
	}
	for _, step := range plan {
		switch {
		case step.What == Unchanged, step.Key == clusterInfo:
			v.Equal++
		case step.What != LeftOut:
			return v, fmt.Errorf("the import, read again, is not as it was written: %s is not there, or lacks something; import again", step.Name())
		}
	}
	survey, err := ipam.New(resources.WithoutViews(s), ipam.Config{}).ReadSurvey(ctx)
	if err != nil {
		return v, err
	}
	v.Addresses = len(survey.Check(ipam.CheckOptions{Now: time.Now(), Grace: grace}))
	return v, nil
}
