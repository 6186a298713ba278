package agent

import (
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/config"
)

func TestSecretsOfTheAgentsSettingsAreHidden(t *testing.T) {
	layers := []config.Layer{
		{Name: "file", Values: map[string]string{"etcdPassword": "hunter2", "etcdUsername": "felix"}, Over: true},
		{Name: "environment", Values: map[string]string{"etcdPassword": "", "logFormat": "json"}},
	}
	cfg := Config{Node: "h1", Local: layers, Problems: []config.Problem{{From: "file", Name: "x", Reason: "is wrong"}}}
	w := httptest.NewRecorder()
	localSettings(cfg)(w, nil)
	body := w.Body.String()
	if strings.Contains(body, "hunter2") {
		t.Error(body)
	}
	for _, want := range []string{`"felix"`, `"logFormat":"json"`, `"etcdPassword":"(hidden)"`, `"etcdPassword":""`, `"Over":true`, `"h1"`, "is wrong"} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in %s", want, body)
		}
	}
	if !reflect.DeepEqual(layers[0].Values, map[string]string{"etcdPassword": "hunter2", "etcdUsername": "felix"}) {
		t.Error("the agent itself lost its password:", layers[0].Values)
	}
}
