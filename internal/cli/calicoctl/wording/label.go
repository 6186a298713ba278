package wording

import "github.com/twillnet/twill/internal/resources"

// LabelOf is a label of a document, and whether it has it.
func LabelOf(doc any, key string) (string, bool) {
	top, _ := doc.(map[string]any)
	meta, _ := top["metadata"].(map[string]any)
	all, _ := meta["labels"].(map[string]any)
	v, ok := all[key]
	return resources.Cell(v), ok
}

// LabelPatch sets a label of a document; nil removes it.
func LabelPatch(key string, value any) map[string]any {
	return map[string]any{"metadata": map[string]any{"labels": map[string]any{key: value}}}
}
