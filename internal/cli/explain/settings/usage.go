package settings

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"github.com/twillnet/twill/internal/agent"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/terminal"
)

// meanings are those of the parameters.
var meanings = map[string]string{
	"guid": "clusterGUID, a random number", "type": "clusterType, and nft where policy is in nftables", "cal_ver": "calicoVersion, which Twill does not write",
	"k8s_ver": "not known to the agent", "version": "of the agent", "rev": "of its source", "size": "nodes", "weps": "workload endpoints", "heps": "host endpoints",
	"policies": "policies, with those that are staged", "profiles": "profiles", "alp": "policy of layer 7, which Twill has not", "alp_policies": "policies of layer 7",
}

// PrintUsage asks the agent at a socket, and prints what it would report now.
func PrintUsage(ctx context.Context, out console.Stdio, o console.Output, socket string) error {
	r, err := agent.AskUsage(ctx, socket)
	if err != nil {
		return err
	}
	if r.Parameters == nil {
		return errors.New("the agent has not read the datastore yet: `twill status` says why")
	}
	return out.Answer(o, console.Answer{Doc: r, Name: ".url", Table: func(w io.Writer, _ bool) error { return usageTable(w, r) }})
}

func usageTable(w io.Writer, r agent.UsageReport) error {
	if r.Off != "" {
		fmt.Fprintf(w, "Nothing is reported: %s. If it were, it would be this:\n\n", r.Off)
	} else {
		fmt.Fprintf(w, "This is reported to %s, and nothing else:\n\n", r.URL)
	}
	t := terminal.NewTable(w, "PARAMETER", "VALUE", "WHAT")
	for _, name := range slices.Sorted(maps.Keys(r.Parameters)) {
		t.Row(name, strings.Join(r.Parameters[name], ","), meanings[name])
	}
	return t.Flush()
}
