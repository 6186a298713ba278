package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

// Document is one resource of a user's file.
type Document struct {
	Index    int // of its document in the file, from 0; the items of a list or sequence share one
	Line     int // where that document begins, from 1
	Resource Resource
	JSON     []byte      // the resource as it was written, as JSON
	Warnings FieldErrors // fields that have no effect, see [Unhonoured], or only where something else does its part; the resource is right all the same
}

// Decode reads YAML or JSON: one or more documents, each a resource, a list of
// resources (a List, or that of a kind, such as a NetworkPolicyList), or a
// sequence of these. Fields may be written in any case, as Calico's own tools
// take them. It is strict: what is not known, or would have to be honoured and
// is not, is an error; see [Unhonoured] for what is only warned of. It returns
// what could be read together with a [FieldErrors] for
// the rest. It neither defaults nor validates: see [Default] and [Validate].
//
// YAML is version 1.1, as in all of Kubernetes: bare y, on or off are booleans
// and 012 is ten. Where text is wanted, such a value is refused, not guessed.
func Decode(data []byte) ([]Document, error) {
	var s strict
	s.file(data)
	return s.out, s.errs.Err()
}

// Documents are those of a file, as JSON, for who wants to know what stands where an error of [Decode] says: decoded one by one they
// give the same errors. One that is no YAML is as it stands; one with nothing in it is left out.
func Documents(data []byte) (out [][]byte) {
	for _, part := range splitDocuments(data) {
		raw, err := toJSON(part.data)
		switch {
		case err != nil:
			out = append(out, part.data)
		case !isNull(raw):
			out = append(out, raw)
		}
	}
	return out
}

// Foreign is an object in a user's file whose apiVersion is not ours.
type Foreign struct {
	Index, Line int // as of a Document
	JSON        []byte
}

// DecodeMixed is [Decode] for files in which others' objects stand beside
// resources; what they mean is for the caller to say.
func DecodeMixed(data []byte) ([]Document, []Foreign, error) {
	s := strict{mixed: true}
	s.file(data)
	return s.out, s.foreign, s.errs.Err()
}

func (s *strict) file(data []byte) {
	for i, part := range splitDocuments(data) {
		s.doc, s.line = i, part.line
		s.document(part.data)
	}
}

// strict collects the resources of a file and all that is wrong in it.
type strict struct {
	mixed     bool // foreign objects are kept, not refused
	doc, line int
	out       []Document
	foreign   []Foreign
	errs      FieldErrors
}

func (s *strict) fail(e FieldError) {
	e.Doc, e.Line = s.doc, s.line
	s.errs = append(s.errs, &e)
}

func (s *strict) document(data []byte) {
	raw, err := toJSON(data)
	if err != nil {
		s.fail(FieldError{Reason: s.inFile(err.Error())})
		return
	}
	if isNull(raw) {
		return // nothing but comments
	}
	s.value(raw, "", 0)
}

// value reads an object, or a sequence of them: calicoctl prints several resources so.
func (s *strict) value(raw []byte, path string, depth int) {
	if len(raw) > 0 && raw[0] == '[' {
		s.items(raw, path, depth)
		return
	}
	s.resource(raw, path, depth)
}

var yamlLine = regexp.MustCompile(`\bline (\d+)`)

// inFile turns the lines of which YAML's errors speak into lines of the file.
func (s *strict) inFile(msg string) string {
	return yamlLine.ReplaceAllStringFunc(msg, func(m string) string {
		n, err := strconv.Atoi(strings.TrimPrefix(m, "line "))
		if err != nil {
			return m
		}
		return fmt.Sprintf("line %d", n+s.line-1)
	})
}

// maxLists bounds lists within lists.
const maxLists = 3

// resource reads one object; path is where it is in its document.
func (s *strict) resource(raw []byte, path string, depth int) {
	var head struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		s.fail(FieldError{Path: path, Reason: "want an object with apiVersion, kind, metadata and spec, kind and apiVersion being text"})
		return
	}
	if base, ok := strings.CutSuffix(head.Kind, "List"); ok {
		if _, known := kindOf(base); known || base == "" {
			s.list(raw, path, depth)
			return
		}
	}
	if s.mixed && head.APIVersion != GroupVersion && head.APIVersion != "" && head.Kind != "" {
		s.foreign = append(s.foreign, Foreign{s.doc, s.line, raw})
		return
	}
	r := New(head.Kind)
	if e := checkHead(head.Kind, head.APIVersion); e != nil {
		e.Path = strings.TrimPrefix(path+"."+e.Path, ".")
		s.fail(*e)
		return
	}
	w := walker{strict: true}
	w.read(raw, reflect.ValueOf(r).Elem(), path)
	name := strings.TrimPrefix(RefOf(r).String(), head.Kind+" ")
	had := len(s.errs)
	for _, f := range w.found {
		e := f.explain()
		e.Kind, e.Name = head.Kind, name
		s.fail(e)
	}
	var warnings FieldErrors
	for _, n := range Notices(r) {
		e := FieldError{Doc: s.doc, Line: s.line, Kind: head.Kind, Name: name, Path: strings.TrimPrefix(path+"."+n.Path, "."), Reason: n.Reason()}
		if n.Fate == Refused {
			s.fail(e)
			continue
		}
		warnings = append(warnings, &e)
	}
	for _, e := range slices.Concat(idle(r), Conditional(r)) {
		e.Doc, e.Line, e.Path = s.doc, s.line, strings.TrimPrefix(path+"."+e.Path, ".")
		warnings = append(warnings, e)
	}
	if len(s.errs) == had {
		s.out = append(s.out, Document{Index: s.doc, Line: s.line, Resource: r, JSON: raw, Warnings: warnings})
	}
}

// listHead is what a list has; its metadata is the server's, and says nothing of the resources.
type listHead struct {
	TypeMeta `json:",inline"`
	Metadata struct {
		ResourceVersion    string `json:"resourceVersion"`
		SelfLink           string `json:"selfLink"`
		Continue           string `json:"continue"`
		RemainingItemCount *int64 `json:"remainingItemCount"`
	} `json:"metadata"`
	Items listItems `json:"items"`
}

// listItems are the items as they are written.
type listItems []byte

// UnmarshalJSON keeps the text.
func (l *listItems) UnmarshalJSON(b []byte) error {
	*l = slices.Clone(b)
	return nil
}

// list reads a List, or the list of a kind. The items of the latter need not say again what they are: upstream's types of lists
// know it.
func (s *strict) list(raw []byte, path string, depth int) {
	var head listHead
	w := walker{strict: true}
	w.read(raw, reflect.ValueOf(&head).Elem(), path)
	for _, f := range w.found {
		e := f.explain()
		e.Kind = head.Kind
		s.fail(e)
	}
	at := join(path, "items")
	if of := strings.TrimSuffix(head.Kind, "List"); of != "" {
		head.Items = s.typed(head, of, at)
	}
	if len(w.found) == 0 && head.Items != nil {
		s.items(head.Items, at, depth)
	} else if head.Items == nil {
		s.fail(FieldError{Kind: head.Kind, Path: at, Reason: "is missing: want a list"})
	}
}

// typed gives the items of a kind's list their kind and version, and refuses others.
func (s *strict) typed(head listHead, kind, path string) []byte {
	var items []json.RawMessage
	if json.Unmarshal(head.Items, &items) != nil || items == nil {
		return head.Items // what it is instead is for items to say
	}
	for i, item := range items {
		ms, ok := members(item)
		if !ok {
			continue
		}
		has := func(name string) json.RawMessage {
			return lookupFold(ms, name)
		}
		text, _ := json.Marshal(kind)
		if k := has("kind"); k != nil && string(k) != string(text) {
			s.fail(FieldError{Kind: head.Kind, Path: fmt.Sprintf("%s[%d].kind", path, i), Reason: fmt.Sprintf("is %s in a %s", clip(string(k)), head.Kind)})
			return []byte("[]")
		} else if k == nil {
			ms = append(ms, member{"kind", text})
		}
		if version, _ := json.Marshal(head.APIVersion); has("apiVersion") == nil {
			ms = append(ms, member{"apiVersion", version})
		}
		items[i] = writeObject(ms)
	}
	raw, _ := json.Marshal(items) // they were JSON
	return raw
}

func (s *strict) items(raw []byte, path string, depth int) {
	var list []json.RawMessage
	if depth >= maxLists {
		s.fail(FieldError{Path: path, Reason: "lists within lists within lists: write the items one by one"})
		return
	}
	if json.Unmarshal(raw, &list) != nil {
		s.fail(FieldError{Path: path, Reason: want("a list", raw)})
	}
	for i, item := range list {
		s.value(item, fmt.Sprintf("%s[%d]", path, i), depth+1)
	}
}

func checkHead(kind, version string) *FieldError {
	if kind == "" {
		return &FieldError{Path: "kind", Reason: "is missing: want one of " + kindNames()}
	}
	if version != GroupVersion && version != "" {
		return &FieldError{Kind: kind, Path: "apiVersion", Reason: fmt.Sprintf("is %q: want %s", version, GroupVersion)}
	}
	if _, ok := kindOf(kind); ok {
		if version == "" {
			return &FieldError{Kind: kind, Path: "apiVersion", Reason: "is missing: want " + GroupVersion}
		}
		return nil
	}
	if laterKinds[kind] {
		return &FieldError{Kind: kind, Path: "kind", Reason: "Calico has this kind; Twill does not honour it yet"}
	}
	return &FieldError{
		Kind: kind, Path: "kind", Reason: fmt.Sprintf("%q is unknown: want one of %s", kind, kindNames()),
		Suggestion: nearest(kind, strings.Split(kindNames(), ", ")),
	}
}

func kindNames() string {
	var names []string
	for _, k := range kinds {
		names = append(names, k.Kind)
	}
	return strings.Join(names, ", ")
}

// explain says what to do about a finding.
func (f finding) explain() FieldError {
	e := FieldError{Path: f.path, Reason: f.reason}
	if !f.unknown {
		return e
	}
	var names []string
	for _, k := range fieldsOf(f.in) {
		names = append(names, k.name)
	}
	e.Suggestion = nearest(f.field, names)
	if e.Suggestion == "" {
		e.Reason = "unknown field: here can be " + strings.Join(names, ", ")
	}
	return e
}

// toJSON reads one document. Text that is JSON is read as JSON, where tabs and
// escapes mean what they mean there.
func toJSON(data []byte) (json.RawMessage, error) {
	if json.Valid(data) {
		if path := repeated(data, ""); path != "" {
			return nil, fmt.Errorf("%s: is there more than once", path)
		}
		return data, nil
	}
	raw, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, errors.New(strings.ReplaceAll(strings.TrimPrefix(err.Error(), "yaml: "), "\n", " "))
	}
	return bytes.TrimSpace(raw), nil
}

// repeated finds a name that an object has twice.
func repeated(raw []byte, path string) string {
	if ms, ok := members(raw); ok {
		seen := make(map[string]bool, len(ms))
		for _, m := range ms {
			p := join(path, m.name)
			if seen[m.name] {
				return p
			}
			seen[m.name] = true
			if p = repeated(m.value, p); p != "" {
				return p
			}
		}
		return ""
	}
	var list []json.RawMessage
	if len(raw) > 0 && raw[0] == '[' && json.Unmarshal(raw, &list) == nil {
		for i, v := range list {
			if p := repeated(v, fmt.Sprintf("%s[%d]", path, i)); p != "" {
				return p
			}
		}
	}
	return ""
}

type part struct {
	data []byte
	line int
}

// splitDocuments cuts a file at the lines that begin with --- (in YAML these
// always part documents, even inside of block text), or JSON values that stand
// one behind the other.
func splitDocuments(data []byte) []part {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))
	if parts, ok := splitJSON(data); ok {
		return parts
	}
	var out []part
	cur, at := []byte(nil), 1
	flush := func() {
		if len(bytes.TrimSpace(cur)) > 0 {
			text := bytes.TrimLeft(cur, "\r\n")
			out = append(out, part{text, at + bytes.Count(cur[:len(cur)-len(text)], []byte("\n"))})
		}
		cur = nil
	}
	n := 0
	for line := range bytes.Lines(data) {
		n++
		text := bytes.TrimRight(line, "\r\n")
		rest, marker := bytes.CutPrefix(text, []byte("---"))
		switch {
		case marker && (len(rest) == 0 || rest[0] == ' ' || rest[0] == '\t'):
			flush()
			at = n
			// What follows the marker on its line belongs to the document.
			cur = append(append(cur, rest...), '\n')
		case string(bytes.TrimRight(text, " \t")) == "...":
			flush()
			at = n + 1
		default:
			cur = append(cur, line...)
		}
	}
	flush()
	return out
}

func splitJSON(data []byte) ([]part, bool) {
	if t := bytes.TrimSpace(data); len(t) == 0 || t[0] != '{' && t[0] != '[' {
		return nil, false
	}
	var out []part
	dec := json.NewDecoder(bytes.NewReader(data))
	for {
		before := int(dec.InputOffset())
		var raw json.RawMessage
		err := dec.Decode(&raw)
		if errors.Is(err, io.EOF) {
			return out, true
		}
		if err != nil {
			return nil, false
		}
		gap := len(data[before:]) - len(bytes.TrimLeft(data[before:], " \t\r\n"))
		out = append(out, part{raw, 1 + bytes.Count(data[:before+gap], []byte("\n"))})
	}
}
