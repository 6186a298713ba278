package crds

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/twillnet/twill/api"
)

// schemas makes schemas of Go types.
type schemas struct {
	limited bool // with limitsOf
}

// of is the schema of a resource: that of its spec and status. The API server knows the rest itself. Fields that this version
// does not know are kept.
func (s schemas) of(t reflect.Type) map[string]any {
	properties := map[string]any{}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "spec" || name == "status" {
			properties[name] = s.ofType(f.Type)
		}
	}
	out := map[string]any{"type": "object", "properties": properties}
	s.limit(out, t)
	return out
}

// ofType is the schema of a Go type. One that reads its JSON itself may be a number or a text.
func (s schemas) ofType(t reflect.Type) map[string]any {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t {
	case reflect.TypeFor[api.Port](), reflect.TypeFor[api.Protocol](), reflect.TypeFor[api.ASNumber]():
		out := map[string]any{"x-kubernetes-int-or-string": true}
		s.limit(out, t)
		return out
	case reflect.TypeFor[api.Later]():
		return map[string]any{"x-kubernetes-preserve-unknown-fields": true}
	}
	switch t.Kind() {
	case reflect.Struct:
		out := map[string]any{"type": "object", "properties": map[string]any{}, "x-kubernetes-preserve-unknown-fields": true}
		s.addFields(out, t)
		return out
	case reflect.Map:
		return map[string]any{"type": "object", "additionalProperties": s.ofType(t.Elem())}
	case reflect.Slice:
		return map[string]any{"type": "array", "items": s.ofType(t.Elem())}
	case reflect.Bool:
		return map[string]any{"type": "boolean"}
	case reflect.Float64:
		return map[string]any{"type": "number"}
	case reflect.String:
		return map[string]any{"type": "string"}
	case reflect.Int, reflect.Int32, reflect.Int64, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return s.integer(t.Kind())
	}
	panic(fmt.Sprintf("crds: no schema for %s", t)) // a type of package api that a test of this package has not seen
}

// largest are the largest numbers of the unsigned types that package api has.
var largest = map[reflect.Kind]int64{reflect.Uint8: 1<<8 - 1, reflect.Uint16: 1<<16 - 1, reflect.Uint32: 1<<32 - 1}

func (s schemas) integer(k reflect.Kind) map[string]any {
	out := map[string]any{"type": "integer", "format": "int64"}
	if most := largest[k]; s.limited && most > 0 {
		node(out).within(0, most)
	}
	return out
}

// addFields adds the fields of a struct to the schema of an object.
func (s schemas) addFields(out map[string]any, t reflect.Type) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, ok := f.Tag.Lookup("json")
		name, _, _ := strings.Cut(tag, ",")
		switch {
		case f.Anonymous && (name == "" || strings.Contains(tag, ",inline")):
			s.addFields(out, f.Type)
		case ok && name != "" && name != "-" && f.IsExported():
			out["properties"].(map[string]any)[name] = s.ofType(f.Type)
		}
	}
	s.limit(out, t)
}

// limit adds to the schema of a type what package api's validation says of it.
func (s schemas) limit(out map[string]any, t reflect.Type) {
	if limit := limitsOf[t]; s.limited && limit != nil {
		limit(out)
	}
}
