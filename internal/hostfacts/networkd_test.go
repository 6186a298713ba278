package hostfacts

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/twillnet/twill/internal/doctor"
)

func TestWhatNetworkdRemovesIsRead(t *testing.T) {
	const routes, rules = "ManageForeignRoutes", "ManageForeignRoutingPolicyRules"
	for _, tt := range []struct {
		name  string
		files map[string]string
		want  doctor.Networkd
	}{
		{"by default, all", nil, doctor.Networkd{RemovesRoutes: true, RemovesRules: true}},
		{"the file that Debian has", map[string]string{"etc/systemd/networkd.conf": "# comment\n[Network]\n#" + routes + "=no\n"}, doctor.Networkd{RemovesRoutes: true, RemovesRules: true}},
		{"routes stay", map[string]string{"etc/systemd/networkd.conf": "[Network]\n " + routes + " = No \n"}, doctor.Networkd{RemovesRules: true}},
		{"in another section", map[string]string{"etc/systemd/networkd.conf": "[DHCPv4]\n" + routes + "=no\n"}, doctor.Networkd{RemovesRoutes: true, RemovesRules: true}},
		{"a word that is none", map[string]string{"etc/systemd/networkd.conf": "[Network]\n" + routes + "=never\n"}, doctor.Networkd{RemovesRoutes: true, RemovesRules: true}},
		{"the administrator's file alone", map[string]string{
			"etc/systemd/networkd.conf": "[Network]\n" + routes + "=no\n", "usr/lib/systemd/networkd.conf": "[Network]\n" + rules + "=no\n",
		}, doctor.Networkd{RemovesRules: true}},
		{"additions say the last word, in the order of their names", map[string]string{
			"etc/systemd/networkd.conf": "[Network]\n" + routes + "=no\n", "etc/systemd/networkd.conf.d/20-b.conf": "[Network]\n" + rules + "=off\n", "usr/lib/systemd/networkd.conf.d/10-a.conf": "[Network]\n" + routes + "=yes\n" + rules + "=1\n",
		}, doctor.Networkd{RemovesRoutes: true}},
		{"an addition of the administrator's in the place of another", map[string]string{
			"etc/systemd/networkd.conf.d/a.conf": "", "usr/lib/systemd/networkd.conf.d/a.conf": "[Network]\n" + rules + "=no\n", "run/systemd/networkd.conf.d/b": "[Network]\n" + routes + "=no\n",
		}, doctor.Networkd{RemovesRoutes: true, RemovesRules: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			root := t.TempDir()
			for name, text := range tt.files {
				file := filepath.Join(root, name)
				if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := networkdBy(root); *got != tt.want {
				t.Errorf("got %+v, want %+v", *got, tt.want)
			}
		})
	}
	if got := Networkd([]doctor.Process{{Name: "twill", PID: 1}}); got != nil {
		t.Errorf("where none runs: %+v", got)
	}
	if got := Networkd([]doctor.Process{{Name: "systemd-network", PID: os.Getpid()}}); got == nil {
		t.Error("one that runs is not found")
	}
}
