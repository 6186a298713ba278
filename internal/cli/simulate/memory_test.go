package simulate

import (
	"os"
	"path/filepath"
	"testing"
)

func TestAvailableMemory(t *testing.T) {
	for _, tt := range []struct {
		name, meminfo, limit, used string
		want                       uint64
	}{
		{name: "what the machine has", meminfo: "MemTotal: 9000 kB\nMemAvailable:    2048 kB\n", want: 2 << 20},
		{name: "a control group without a limit", meminfo: "MemAvailable: 2048 kB\n", limit: "max\n", used: "4096\n", want: 2 << 20},
		{name: "a control group that may have less", meminfo: "MemAvailable: 2048 kB\n", limit: "1048576\n", used: "4096\n", want: 1<<20 - 4096},
		{name: "a control group that may have more", meminfo: "MemAvailable: 2048 kB\n", limit: "1048576000\n", used: "4096\n", want: 2 << 20},
		{name: "nobody knows"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range map[string]string{"proc/meminfo": tt.meminfo, "sys/fs/cgroup/memory.max": tt.limit, "sys/fs/cgroup/memory.current": tt.used} {
				if text == "" {
					continue
				}
				file := filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := available(root); got != tt.want {
				t.Errorf("%d, want %d", got, tt.want)
			}
		})
	}
}
