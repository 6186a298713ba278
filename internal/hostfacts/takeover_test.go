package hostfacts

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/doctor"
	"github.com/twillnet/twill/internal/doctor/takeover"
	"github.com/twillnet/twill/internal/kernel/netnstest"
)

// TestUpstreamsAgentIsRead: its environment by its process, its file, and what is pinned.
func TestUpstreamsAgentIsRead(t *testing.T) {
	t.Setenv("FELIX_LOGSEVERITYSCREEN", "Debug")
	ns := netnstest.New(t)
	pid, _ := ns.Called("calico-felix")
	h := open(t, ns)
	dir := t.TempDir()
	file, bpf := filepath.Join(dir, "felix.cfg"), filepath.Join(dir, "bpf")
	for _, name := range []string{"tc/globals/cali_v4_routes", "tc/globals/others", "calico/xdp/prefilter", "other/x"} {
		path := filepath.Join(bpf, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	facts := func() *takeover.Facts {
		f := &takeover.Facts{Facts: &doctor.Facts{Processes: h.Processes()}}
		f.Processes = append(f.Processes, doctor.Process{Name: "calico-node", PID: 1 << 30}, doctor.Process{Name: "other", PID: os.Getpid()})
		Takeover(f, file, bpf)
		return f
	}
	f := facts()
	if len(f.Agents) != 2 || f.Agents[0].PID != pid || f.Agents[0].EnvironErr != "" || !slices.Contains(f.Agents[0].Environ, "FELIX_LOGSEVERITYSCREEN=Debug") {
		t.Errorf("agents: %+v", f.Agents)
	}
	if len(f.Agents) == 2 && f.Agents[1].EnvironErr == "" {
		t.Error("a process that is gone has an environment")
	}
	if want := []string{bpf + "/calico/xdp/prefilter", bpf + "/tc/globals/cali_v4_routes"}; !slices.Equal(f.Pins, want) || f.BPFErr != "" {
		t.Errorf("pins %q (%s), want %q", f.Pins, f.BPFErr, want)
	}
	if f.File != (takeover.File{Path: file}) {
		t.Errorf("a file that is not there: %+v", f.File)
	}
	if err := os.WriteFile(file, []byte("LogFilePath = None\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if f = facts(); !strings.HasPrefix(f.File.Text, "LogFilePath") || f.File.Err != "" {
		t.Errorf("the file: %+v", f.File)
	}
	file, bpf = dir, filepath.Join(dir, "nowhere")
	if f = facts(); f.File.Err == "" || f.BPFErr != "" || len(f.Pins) > 0 {
		t.Errorf("a directory in the place of the file: %+v; no file system of BPF: %q %s", f.File, f.Pins, f.BPFErr)
	}
}
