package console

import (
	"fmt"
	"io"
	"os"
)

// MaxManifest bounds what one file may hold, so that a wrong path cannot eat the memory.
const MaxManifest = 256 << 20

func ReadFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxManifest+1))
	if len(data) > MaxManifest {
		return nil, fmt.Errorf("%s: larger than %d MiB", name, MaxManifest>>20)
	}
	return data, err
}
