package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// withFile has the variables of a file count that are not set here, as they will for who is started with that file, until the function that it
// returns is called. The file has the form of systemd's EnvironmentFile (systemd.exec(5)); one that is not there says nothing.
func withFile(name string) (undo func(), err error) {
	content, err := os.ReadFile(name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read the environment of Twill's units: %w", err)
	}
	var set []string
	for line := range strings.Lines(string(content)) {
		variable, value, ok := assignment(line)
		if _, has := os.LookupEnv(variable); !ok || has {
			continue
		}
		if err := os.Setenv(variable, value); err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, variable, err)
		}
		set = append(set, variable)
	}
	return func() {
		for _, variable := range set {
			_ = os.Unsetenv(variable) // it was set here
		}
	}, nil
}

// assignment reads NAME=value of a line, with or without quotes around the value; false: it is empty, a comment, or none.
func assignment(line string) (name, value string, ok bool) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' || line[0] == ';' {
		return "", "", false
	}
	name, value, ok = strings.Cut(line, "=")
	if value = strings.TrimSpace(value); len(value) > 1 && (value[0] == '"' || value[0] == '\'') && value[len(value)-1] == value[0] {
		value = value[1 : len(value)-1]
	}
	return strings.TrimSpace(name), value, ok && name != ""
}
