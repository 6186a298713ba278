package translate

import (
	"errors"
	"fmt"
	"strings"

	"github.com/twillnet/twill/api"
)

// mostClosed is how many reasons an annotation has, and mostReason how many bytes of each: an event's message has 1,024 at most.
const mostClosed, mostReason = 5, 180

// MarkClosed notes on a resource, as [api.AnnotationNotTranslated], what could not be translated: the error that came with it. With none it leaves the resource as it is.
func MarkClosed(r api.Resource, err error) {
	reasons := Closed(err)
	if reasons == "" {
		return
	}
	m := r.Meta()
	m.Annotations = with(m.Annotations, api.AnnotationNotTranslated, reasons)
}

// Closed is what is wrong in an object, without its name: the first reasons, in their order.
func Closed(err error) string {
	if err == nil {
		return ""
	}
	var all api.FieldErrors
	if !errors.As(err, &all) {
		return cut(err.Error())
	}
	var out []string
	for i, e := range all {
		if i == mostClosed {
			out = append(out, fmt.Sprintf("and %d more", len(all)-i))
			break
		}
		out = append(out, cut(strings.TrimPrefix(e.Path+": "+e.Reason, ": ")))
	}
	return strings.Join(out, "; ")
}

// cut shortens a text to mostReason bytes.
func cut(text string) string {
	if len(text) <= mostReason {
		return text
	}
	return strings.ToValidUTF8(text[:mostReason-len("…")], "") + "…"
}
