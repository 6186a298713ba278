package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"

	"github.com/twillnet/twill/internal/config"
)

// LocalSettings are what an agent was started with: what its file, environment and command line say, which nobody else can know.
type LocalSettings struct {
	Node     string           `json:"node"`
	Layers   []config.Layer   `json:"layers"` // the later wins; secrets are hidden
	Problems []config.Problem `json:"problems,omitempty"`
}

// Hidden is in place of a secret.
const Hidden = "(hidden)"

// localSettings answers with the settings of a configuration.
func localSettings(cfg Config) http.HandlerFunc {
	out := LocalSettings{Node: cfg.Node, Problems: cfg.Problems}
	for _, l := range cfg.Local {
		if l.Values["etcdPassword"] != "" {
			l.Values = maps.Clone(l.Values)
			l.Values["etcdPassword"] = Hidden
		}
		out.Layers = append(out.Layers, l)
	}
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(out) // the reader has gone
	}
}

// AskSettings fetches the local settings of the agent at a socket.
func AskSettings(ctx context.Context, socket string) (LocalSettings, error) {
	resp, err := ask(ctx, socket, "/settings")
	if err != nil {
		return LocalSettings{}, err
	}
	defer resp.Body.Close()
	var out LocalSettings
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		return LocalSettings{}, fmt.Errorf("the agent's answer: %w", err)
	}
	return out, nil
}
