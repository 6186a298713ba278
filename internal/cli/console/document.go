package console

import (
	"encoding/json"

	"sigs.k8s.io/yaml"
)

// Document prints v as json or yaml, if that is wanted.
func (c Stdio) Document(v any, output string) (bool, error) {
	var b []byte
	var err error
	switch output {
	case "json":
		b, err = json.MarshalIndent(v, "", "  ")
		b = append(b, '\n')
	case "yaml":
		b, err = yaml.Marshal(v)
	default:
		return false, nil
	}
	if err == nil {
		_, err = c.Out.Write(b)
	}
	return true, err
}
