package node

import (
	"strings"
	"testing"
	"time"

	"github.com/twillnet/twill/internal/libnetwork"
)

func TestSettingsOfDockersPluginAreReadOrRefused(t *testing.T) {
	for _, tt := range []struct {
		mtu, profiles, labels, namespace string
		want                             libnetwork.Config
		refused                          string
	}{
		{"", "true", "false", "", libnetwork.Config{}, ""},
		{"1400", "false", "true", "default", libnetwork.Config{MTU: 1400, NoProfiles: true, Labels: true}, ""},
		{"wide", "true", "false", "", libnetwork.Config{}, `CALICO_LIBNETWORK_VETH_MTU) is "wide"`},
		{"67", "true", "false", "", libnetwork.Config{}, "want 68 to 65535"},
		{"", "perhaps", "false", "", libnetwork.Config{}, `CALICO_LIBNETWORK_CREATE_PROFILES) is "perhaps"`},
		{"", "true", "perhaps", "", libnetwork.Config{}, `CALICO_LIBNETWORK_LABEL_ENDPOINTS) is "perhaps"`},
		{"", "true", "false", "prod", libnetwork.Config{}, `CALICO_LIBNETWORK_NAMESPACE is "prod"`},
	} {
		t.Setenv("CALICO_LIBNETWORK_NAMESPACE", tt.namespace)
		got := libnetwork.Config{CollectAfter: time.Minute}
		tt.want.CollectAfter = time.Minute
		err := dockerTexts{tt.mtu, tt.profiles, tt.labels}.into(&got)
		switch {
		case tt.refused == "" && (err != nil || got != tt.want):
			t.Errorf("%+v: %+v, %v", tt, got, err)
		case tt.refused != "" && (err == nil || !strings.Contains(err.Error(), tt.refused)):
			t.Errorf("%+v: %v", tt, err)
		}
	}
}
