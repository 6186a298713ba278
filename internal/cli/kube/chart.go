package kube

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/twillnet/twill/internal/cli/conn"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore/kubestore/crds"
	"github.com/twillnet/twill/internal/datastore/kubestore/form"
	"github.com/twillnet/twill/internal/terminal"
)

func (c *command) chartCmd() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "chart",
		Short: "Write a Helm chart of what install prints",
		Long: `Chart writes a Helm chart, packed, to standard output, or with --dir as files. It
renders to what "twill kube install" prints with the same options, which are its
values; values.yaml says what each is for, and others are refused by Helm:

helm install twill twill.tgz -n kube-system --set image=registry.example/twill:1

"helm uninstall" leaves the definitions of resources, and so the resources: they are
annotated helm.sh/resource-policy: keep.

Exit code: 0 written, 1 it cannot be written, 2 usage.`,
		Example: `  twill kube chart > twill.tgz
  twill kube chart --dir deploy/twill`,
		Args: console.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			files, err := chart()
			if err != nil {
				return err
			}
			if dir != "" {
				return unpacked(dir, files)
			}
			if terminal.Is(c.Out) {
				return console.Usage("the chart is an archive, and this is a terminal: write it to a file (> twill.tgz), or as files (--dir)")
			}
			return packed(c.Out, files)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "write files into this directory, which must be empty or missing")
	return cmd
}

// file is one of a chart.
type file struct{ name, text string }

// values are those of the chart: a word in the manifest, which stands for one, and what Helm puts in its place.
var values = []struct{ word, template string }{
	{"twill-value-image", "{{ .Values.image | quote }}"},
	{"twill-value-namespace", "{{ .Release.Namespace | quote }}"},
	{"twill-value-backend", "{{ .Values.backend | quote }}"},
	{"twill-value-network", "{{ .Values.cniNetworkConfig | quote }}"},
	{"twill-value-links", "{{ .Values.podLinks | quote }}"},
	{fmt.Sprintf("%q", fmt.Sprint(mtuWord)), "{{ int .Values.mtu | toString | quote }}"},
	{"\n  - twill-value-secret\n", " {{ .Values.bgpSecrets | toJson }}\n"},
}

const mtuWord = 987654321 // a number that no link has

// poolsWord is the variable that stands for those which make pools.
var poolsWord = regexp.MustCompile(`(?m)^( *)- name: twill-value-pools\n +value: x\n`)

const poolsTemplate = `$1{{- range .Values.pools }}
$1- name: {{ if contains ":" . }}CALICO_IPV6POOL_CIDR{{ else }}CALICO_IPV4POOL_CIDR{{ end }}
$1  value: {{ . | quote }}
$1{{- else }}
$1- name: NO_DEFAULT_POOLS
$1  value: "true"
$1{{- end }}
`

// check is what a schema cannot say.
const check = `{{- $four := 0 }}{{- $six := 0 }}
{{- range .Values.pools }}{{ if contains ":" . }}{{ $six = add1 $six }}{{ else }}{{ $four = add1 $four }}{{ end }}{{ end }}
{{- if or (gt (int $four) 1) (gt (int $six) 1) }}{{ fail "pools: one of each family is the first; make others with twill apply" }}{{ end }}
{{- if and .Values.podLinks (or .Values.pools .Values.cniNetworkConfig (eq .Values.backend "vxlan")) }}{{ fail "podLinks: whose plugin attaches pods has their addresses and routes: leave out pools, cniNetworkConfig and backend" }}{{ end }}
`

// chart is the chart's files.
func chart() ([]file, error) {
	properties := map[string]any{
		"image":            map[string]any{"type": "string", "minLength": 1},
		"group":            map[string]any{"enum": []any{form.V3, form.V1}},
		"backend":          map[string]any{"enum": backends},
		"mtu":              map[string]any{"type": "integer", "minimum": 0, "maximum": 65535},
		"pools":            map[string]any{"type": "array", "items": map[string]any{"type": "string", "pattern": "^[0-9a-fA-F.:]+/[0-9]+$"}},
		"cniNetworkConfig": map[string]any{"type": "string"},
		"podLinks":         map[string]any{"type": "string", "pattern": "^$|" + linkPrefix.String(), "not": map[string]any{"const": "cali"}},
		"bgpSecrets":       map[string]any{"type": "array", "items": map[string]any{"type": "string", "minLength": 1}},
		"global":           map[string]any{"type": "object"}, // Helm's own, of charts that have others in them
	}
	schema, err := json.MarshalIndent(map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "type": "object", "additionalProperties": false, "required": []any{"image"}, "properties": properties,
	}, "", "  ")
	if err != nil {
		return nil, err
	}
	out := []file{
		{"Chart.yaml", "apiVersion: v2\nname: twill\ndescription: Routed networking and network policy\ntype: application\nversion: " + chartVersion() + "\nappVersion: " + fmt.Sprintf("%q", conn.Version) + "\n"},
		{"values.yaml", chartValues},
		{"values.schema.json", string(schema) + "\n"},
	}
	for _, g := range []form.Group{form.V3, form.V1} {
		text, err := chartTemplate(g)
		if err != nil {
			return nil, err
		}
		out = append(out, file{"templates/" + strings.ReplaceAll(string(g), "/", "-") + ".yaml", text})
	}
	return out, nil
}

const chartValues = `# That nodes and controllers run: registry/name:tag. It has twill and twill-cni in its path (make image packs one). Required.
image: ""

# Of the cluster's resources: projectcalico.org/v3, or crd.projectcalico.org/v1 where Calico keeps its own.
group: projectcalico.org/v3

# calico_backend of the ConfigMap: bird (routes by BGP, Twill's own), vxlan or none (no BGP).
backend: bird

# veth_mtu of the ConfigMap: of the links of pods and of tunnels, in bytes; 0: found out.
mtu: 0

# Prefixes of the first pools, one of each family at most, such as [10.244.0.0/16]; none: no pool is made.
pools: []

# cni_network_config of the ConfigMap: a network in place of Twill's own, such as that of Calico's manifest.
cniNetworkConfig: ""

# Policy alone, of pods that another CNI plugin attaches: what names of their interfaces begin with (eni: Amazon's VPC, azv: Azure's, gke: Google's). There is
# no CNI plugin of ours and no BGP then.
podLinks: ""

# Secrets of the release's namespace with passwords of BGP, by name, which nodes may read.
bgpSecrets: []
`

// chartTemplate is the manifest of a group, as a template.
func chartTemplate(g form.Group) (string, error) {
	const namespace = "twill-value-namespace"
	set := crds.NodeSet{Namespace: namespace, Image: "twill-value-image", Group: g, Backend: "twill-value-backend", MTU: mtuWord, Network: "twill-value-network", Pools: [][2]string{{"twill-value-pools", "x"}}}
	alone := set
	alone.PodLinks, alone.Backend, alone.Network, alone.Pools = "twill-value-links", "none", "", noPools
	accounts := crds.Node(g, namespace)
	secrets := crds.Node(g, namespace, "twill-value-secret")[len(accounts):]
	text, err := either("podLinks", kept(manifest(g, alone)), kept(manifest(g, set)))
	if err != nil {
		return "", err
	}
	optional, err := either("bgpSecrets", secrets, make([]map[string]any, len(secrets)))
	if err != nil {
		return "", err
	}
	text += optional
	for _, v := range values {
		text = strings.ReplaceAll(text, v.word, v.template)
	}
	text = poolsWord.ReplaceAllString(text, poolsTemplate)
	return fmt.Sprintf("%s{{- if eq .Values.group %q }}\n%s{{- end }}\n", check, g, text), nil
}

// kept has Helm leave definitions where they are when it uninstalls.
func kept(all []map[string]any) []map[string]any {
	for _, o := range all {
		if o["kind"] == "CustomResourceDefinition" {
			meta := o["metadata"].(map[string]any) //nolint:forcetypeassert // a definition is ours
			notes, _ := meta["annotations"].(map[string]any)
			if notes == nil {
				notes = map[string]any{}
			}
			notes["helm.sh/resource-policy"] = "keep"
			meta["annotations"] = notes
		}
	}
	return all
}

// either has a template with the objects of one manifest where a value is set, and with those of another, which has as many, where it is not. What is
// the same in both is there once; nil is no object.
func either(value string, with, without []map[string]any) (string, error) {
	var out strings.Builder
	for i := range with {
		var a, b strings.Builder
		if err := documents(&a, with[i:i+1]); err != nil {
			return "", err
		}
		if without[i] != nil {
			if err := documents(&b, without[i:i+1]); err != nil {
				return "", err
			}
		}
		if a.String() == b.String() {
			out.WriteString(a.String())
		} else {
			fmt.Fprintf(&out, "{{- if .Values.%s }}\n%s{{- else }}\n%s{{- end }}\n", value, a.String(), b.String())
		}
	}
	return out.String(), nil
}

// chartVersion is a version as SemVer has it, which Helm wants.
func chartVersion() string {
	if v := strings.TrimPrefix(conn.Version, "v"); regexp.MustCompile(`^\d+\.\d+\.\d+([-+][0-9A-Za-z.+-]+)?$`).MatchString(v) {
		return v
	}
	return "0.0.0+" + regexp.MustCompile(`[^0-9A-Za-z-]+`).ReplaceAllString(conn.Version, "-")
}

// packed writes a chart as Helm packs it. Equal charts are equal bytes.
func packed(out io.Writer, files []file) error {
	z := gzip.NewWriter(out)
	w := tar.NewWriter(z)
	for _, f := range files {
		h := &tar.Header{Name: "twill/" + f.name, Mode: 0o644, Size: int64(len(f.text)), ModTime: time.Unix(0, 0), Typeflag: tar.TypeReg, Format: tar.FormatPAX}
		if err := w.WriteHeader(h); err != nil {
			return err
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			return err
		}
	}
	if err := w.Close(); err != nil {
		return err
	}
	return z.Close()
}

// unpacked writes a chart as files. What is there is not written over: it may have been changed.
func unpacked(dir string, files []file) error {
	if there, err := os.ReadDir(dir); err == nil && len(there) > 0 {
		return console.Usage("--dir %s: is not empty, and nothing is written over", dir)
	}
	for _, f := range files {
		path := filepath.Join(dir, f.name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, []byte(f.text), 0o644); err != nil { //nolint:gosec // others may read it
			return err
		}
	}
	return nil
}
