package console

import (
	"fmt"
	"io"

	"k8s.io/client-go/util/jsonpath"
	kjson "sigs.k8s.io/json"
)

// jsonPath is a template of kubectl's -o jsonpath: text, and in braces paths, quoted text, range and end. It was parsed once, so
// that it is known to be right, and is parsed again for each document: executing one changes it (client-go v0.37.2, FindResults).
type jsonPath string

func parseJSONPath(text string) (jsonPath, error) {
	parser, err := jsonpath.Parse("output", text)
	if err == nil {
		err = checkRanges(parser.Root)
	}
	if err != nil {
		return "", Usage("-o jsonpath: %q: %v; want a path such as {.items[*].metadata.name}", text, err)
	}
	return jsonPath(text), nil
}

// checkRanges finds before anything is printed what the library finds when it executes, or not at all: words that it does not know,
// and ranges without an end or a list.
func checkRanges(root *jsonpath.ListNode) error {
	open := 0
	for _, node := range root.Nodes {
		action, ok := node.(*jsonpath.ListNode)
		if !ok || len(action.Nodes) == 0 {
			continue
		}
		word, ok := action.Nodes[0].(*jsonpath.IdentifierNode)
		switch {
		case !ok:
		case word.Name == "range" && len(action.Nodes) > 1:
			open++
		case word.Name == "range":
			return fmt.Errorf("{range} needs a list: {range .items[*]}")
		case word.Name == "end" && open > 0:
			open--
		case word.Name == "end":
			return fmt.Errorf("an {end} without its {range}")
		default:
			return fmt.Errorf("{%s} is not known", word.Name)
		}
	}
	if open > 0 {
		return fmt.Errorf("a {range} without its {end}")
	}
	return nil
}

// print writes what the template makes of a document. A field that it has not is empty, as in kubectl.
func (p jsonPath) print(w io.Writer, doc []byte) error {
	var v any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(doc, &v); err != nil { // filters compare numbers with int64 and float64
		return err
	}
	t := jsonpath.New("output").AllowMissingKeys(true)
	err := t.Parse(string(p))
	if err == nil {
		err = t.Execute(w, v)
	}
	if err != nil {
		return fmt.Errorf("-o jsonpath: %w", err)
	}
	return nil
}
