package show

import (
	"io"
	"testing"

	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/resources"
)

const pathed = `{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"web","namespace":"prod","uid":"u1","stamp":"s"},` +
	`"spec":{"tier":"default","order":5,"ingress":[{"action":"Allow","http":{"methods":["GET"]},"later":[1]}],"selector":"all()","types":["Ingress"],"newer":7}}`

// FuzzPaths: whatever is given as a path, selector or format is read or refused.
func FuzzPaths(f *testing.F) {
	for _, s := range []string{".a[0].b", `{.a\.b[*]}`, "a=b,c in (d,e),!f", "x[", "custom-columns=A:.b,C:.d[*]", `jsonpath={.a}{"\n"}x`, `{range .spec.ingress[*]}{.action}{"\n"}{end}`, `{.spec.types[?(@=="Ingress")]}`, `{range .no[*]}{.a}{end}`, `{..name}`, "a.b!=c"} {
		f.Add(s)
	}
	doc, err := resources.Tree([]byte(pathed))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, s string) {
		if path, err := console.ParsePath(s); err == nil {
			_ = console.At(doc, path)
		}
		_, _ = parseLabels(s)
		_, _ = parseFields(s)
		if format, err := console.ParseFormat("jsonpath=" + s); err == nil {
			_ = format.Print(io.Discard, []byte(pathed))
		}
		_, _ = console.ParseFormat("custom-columns=" + s)
	})
}
