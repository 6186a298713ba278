package manifests

import (
	"encoding/json"
	"fmt"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/twillnet/twill/internal/resources"
)

// PatchForms are what ParsePatch reads.
var PatchForms = []string{"strategic", "merge", "json"}

// ParsePatch reads a patch of a form, as JSON or YAML, and returns what it makes of a document.
func ParsePatch(form string, text []byte) (func(doc any) (any, error), error) {
	raw, err := one(text)
	if err != nil {
		return nil, fmt.Errorf("the patch is neither JSON nor YAML: %w", err)
	}
	if form == "json" {
		ops, err := resources.ParseOps(raw)
		if err != nil {
			return nil, err
		}
		return func(doc any) (any, error) { return resources.ApplyOps(doc, ops) }, nil
	}
	patch, err := resources.Tree(raw)
	if err != nil {
		return nil, err
	}
	if _, ok := patch.(map[string]any); !ok {
		return nil, fmt.Errorf("the patch is %s: want an object with the fields to change; a list of operations needs --type json", resources.Brief(patch))
	}
	if form == "strategic" {
		return func(doc any) (any, error) { return resources.StrategicPatch(doc, patch) }, nil
	}
	return func(doc any) (any, error) { return resources.MergePatch(doc, patch), nil }, nil
}

// one is a document of JSON or YAML as JSON. What stands behind it is an error: the reader of YAML stops there and says nothing, so the document is
// read as the only element of a list, behind which nothing may stand.
func one(text []byte) (json.RawMessage, error) {
	raw, err := yaml.YAMLToJSONStrict([]byte("- " + strings.Join(document(string(text)), "\n  ")))
	if err != nil {
		return nil, err
	}
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("it is %d documents: want one", len(all))
	}
	return all[0], nil
}

// document is the lines of a text without what may stand around a document of YAML: a mark that begins it, behind lines that are empty or comments, and marks that end it.
func document(text string) []string {
	lines := strings.Split(strings.ReplaceAll(text, "\r\n", "\n"), "\n")
	isMark := func(line, mark string) bool { return strings.TrimRight(line, " \t") == mark }
	for i, line := range lines {
		if isMark(line, "---") {
			lines = lines[i+1:]
			break
		}
		if word := strings.TrimSpace(line); word != "" && !strings.HasPrefix(word, "#") {
			break
		}
	}
	for len(lines) > 0 && (isMark(lines[len(lines)-1], "") || isMark(lines[len(lines)-1], "---") || isMark(lines[len(lines)-1], "...")) {
		lines = lines[:len(lines)-1]
	}
	return lines
}
