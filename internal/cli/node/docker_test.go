package node

import (
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/libnetwork"
)

func TestSettingsOfDockersPluginAreReadOrRefused(t *testing.T) {
	for _, tt := range []struct {
		mtu, profiles, namespace string
		want                     libnetwork.Config
		refused                  string
	}{
		{"", "true", "", libnetwork.Config{}, ""},
		{"1400", "false", "default", libnetwork.Config{MTU: 1400, NoProfiles: true}, ""},
		{"wide", "true", "", libnetwork.Config{}, `CALICO_LIBNETWORK_VETH_MTU) is "wide"`},
		{"67", "true", "", libnetwork.Config{}, "want 68 to 65535"},
		{"", "perhaps", "", libnetwork.Config{}, `CALICO_LIBNETWORK_CREATE_PROFILES) is "perhaps"`},
		{"", "true", "prod", libnetwork.Config{}, `CALICO_LIBNETWORK_NAMESPACE is "prod"`},
	} {
		t.Setenv("CALICO_LIBNETWORK_NAMESPACE", tt.namespace)
		var got libnetwork.Config
		err := fromTexts(&got, tt.mtu, tt.profiles)
		switch {
		case tt.refused == "" && (err != nil || got != tt.want):
			t.Errorf("%+v: %+v, %v", tt, got, err)
		case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
