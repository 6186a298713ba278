package translate_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/translate"
)

func TestWhatIsClosedIsOneLineThatFitsIntoAnEvent(t *testing.T) {
	many := api.FieldErrors{}
	for i := range 100 {
		many = append(many, &api.FieldError{Kind: "NetworkPolicy", Name: "prod/web", Path: fmt.Sprintf("spec.ingress[%d]", i), Reason: "is " + strings.Repeat("ü", 300)})
	}
	for _, tt := range []struct {
		name string
		err  error
		want string // begins so
	}{
		{"nothing", nil, ""},
		{"a field", api.FieldErrors{{Kind: "NetworkPolicy", Name: "prod/web", Path: "spec.tier", Reason: `is "x"`}}, `spec.tier: is "x"`},
		{"no field", api.FieldErrors{{Reason: "is no JSON"}}, "is no JSON"},
		{"two", fmt.Errorf("read: %w", api.FieldErrors{{Path: "a", Reason: "b"}, {Path: "c", Reason: "d"}}), "a: b; c: d"},
		{"another error", errors.New("away"), "away"},
		{"many and long ones", many, "spec.ingress[0]: is üü"},
	} {
		got := translate.Closed(tt.err)
		if !strings.HasPrefix(got, tt.want) || (tt.want == "") != (got == "") || len(got) > 1024 || !utf8.ValidString(got) {
			t.Errorf("%s: %d bytes: %s", tt.name, len(got), got)
		}
	}
	if got := translate.Closed(many); !strings.HasSuffix(got, "…; and 95 more") {
		t.Error(got)
	}
	p := &api.Profile{}
	p.Metadata.Annotations = map[string]string{"a": "b"}
	before := p.Metadata.Annotations
	if translate.MarkClosed(p, nil); len(p.Metadata.Annotations) != 1 {
		t.Errorf("nothing is wrong: %v", p.Metadata.Annotations)
	}
	if translate.MarkClosed(p, errors.New("away")); p.Metadata.Annotations[api.AnnotationNotTranslated] != "away" || p.Metadata.Annotations["a"] != "b" || len(before) != 1 {
		t.Errorf("%v, and its former map %v", p.Metadata.Annotations, before)
	}
}
