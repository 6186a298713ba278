package ctl

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
)

func TestGetNarrowsAndFormats(t *testing.T) {
	c := newCLI(t)
	c.want(0, "", "apply", "-f", prod)
	c.want(0, "", "label", "node", "h1", "example.com/rack=r7")
	columns := file(t, "columns", "NAME NODE\n.metadata.name .spec.node\n")
	tmpl := file(t, "tmpl", "{{range .items}}{{.metadata.name}};{{end}}")
	for _, tt := range []struct{ name, args, want string }{
		{"labels as kubectl writes them", "get wep -A -l app=web -o name", "workloadendpoint/prod/h1-k8s-web-eth0"},
		{"a list of labels", "get wep -A -l 'app in (web,db),!zone' -o name", "workloadendpoint/prod/h1-k8s-web-eth0\nworkloadendpoint/prod/h2-k8s-db-eth0"},
		{"not equal is also absent", "get wep -A -l app!=web -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
		{"labels as selectors", `get wep -A -l 'app == "web" || app == "none"' -o name`, "workloadendpoint/prod/h1-k8s-web-eth0"},
		{"a field", "get wep -A --field-selector spec.node=h2 -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
		{"a field that differs", "get wep -A --field-selector spec.node!=h2 -o name", "workloadendpoint/prod/h1-k8s-web-eth0"},
		{"an element of a list", "get wep -A --field-selector spec.ipNetworks=10.65.0.2/32 -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
		{"nothing matches", "get wep -A -l app=x", "nothing found that the selectors match"},
		{"ps is the table", "get nodes -o ps", "NAME  IPV4          IPV6\nh1    192.0.2.1/24"},
		{"custom columns", "get wep -A -o custom-columns=NAME:.metadata.name,FIRST:.spec.ipNetworks[0],POD:{.spec.pod},NO:.spec.no", "NAME             FIRST         POD  NO\nh1-k8s-web-eth0  10.65.0.1/32  web  <none>\nh2-k8s-db-eth0   10.65.0.2/32  db   <none>"},
		{"all elements, and a name with dots", `get nodes -o custom-columns=RACK:.metadata.labels.example\.com/rack`, "RACK\nr7"},
		{"columns from a file", "get wep -A -o custom-columns-file=" + columns, "NAME             NODE\nh1-k8s-web-eth0  h1\nh2-k8s-db-eth0   h2"},
		{"a template", "get wep -A -o 'go-template={{range .items}}{{.spec.node}} {{end}}'", "h1 h2"},
		{"a template of one", "get np db -n prod -o 'go-template={{.spec.order}}'", "100"},
		{"a template from a file", "get gnp -o go-template-file=" + tmpl, "no-telnet;"},
		{"jsonpath of a list", `get wep -A -o 'jsonpath={.items[*].metadata.name}{"\n"}'`, "h1-k8s-web-eth0 h2-k8s-db-eth0"},
		{"jsonpath of one, with text", "get np db -n prod -o 'jsonpath=order {.spec.order}.'", "order 100."},
		{"every kind", "get all -A -l app=db -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
	} {
		t.Run(tt.name, func(t *testing.T) { equal(t, (&cli{t, c.store}).want(0, "", words(tt.args)...), tt.want) })
	}
	for _, args := range []string{
		"get np -l 'a in (b'", "get np --field-selector x", "get np -o custom-columns=", "get np -o custom-columns=A", "get np -o custom-columns=A:.b[x]",
		"get np -o jsonpath={.a", "get np -o jsonpath={range}", "get np -o 'go-template={{'", "get np,gnp -w", "get np -w -o name", "get np -o custom-columns-file=" + tmpl,
	} {
		t.Run(args, func(t *testing.T) { contains(t, (&cli{t, c.store}).want(2, "", words(args)...), "twill: ") })
	}
}

func TestExportLeavesOutWhatBelongsToTheCluster(t *testing.T) {
	c := newCLI(t)
	c.want(0, "", "apply", "-f", prod)
	with := c.want(0, "", "get", "np", "db", "-n", "prod", "-o", "yaml")
	contains(t, with, "resourceVersion", "uid", "creationTimestamp")
	without := c.want(0, "", "get", "np", "db", "-n", "prod", "-o", "yaml", "--export")
	for _, gone := range []string{"resourceVersion", "uid", "creationTimestamp"} {
		if strings.Contains(without, gone) {
			t.Errorf("%s is in\n%s", gone, without)
		}
	}
	equal(t, newCLI(t).want(0, without, "create", "-f", "-"), "networkpolicy/prod/db created")
}

// watching runs a watch, and returns its lines, its errors and what ends it.
func (c *cli) watching(args string) (lines *bufio.Scanner, errs *bufio.Scanner, stop func() int) {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.t.Context())
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	cmd := &command{stdio: Stdio{strings.NewReader(""), outW, errW}}
	cmd.conn.open = func(context.Context) (datastore.Store, func(), error) { return c.store, func() {}, nil }
	code := make(chan int, 1)
	go func() {
		code <- run(ctx, cmd, words(args))
		_ = outW.Close()
		_ = errW.Close()
	}()
	return bufio.NewScanner(outR), bufio.NewScanner(errR), func() int {
		cancel()
		return <-code
	}
}

func next(t *testing.T, s *bufio.Scanner, want string) {
	t.Helper()
	if !s.Scan() {
		t.Fatalf("the output ends before %q", want)
	}
	if got := strings.Join(strings.Fields(s.Text()), " "); !strings.Contains(got, want) {
		t.Fatalf("got  %s\nwant %s", got, want)
	}
}

func TestWatchPrintsWhatThereIsAndEachChange(t *testing.T) {
	c := newCLI(t)
	c.want(0, web, "apply", "-f", "-")
	out, _, stop := c.watching("get np -A -w -l app!=hidden")
	next(t, out, "CHANGE NAMESPACE NAME")
	next(t, out, "added prod web")
	c.want(0, strings.Replace(web, "name: web", "name: two", 1), "apply", "-f", "-")
	next(t, out, "added prod two")
	c.want(0, "", "patch", "np", "two", "-n", "prod", "-p", "spec: {order: 7}")
	next(t, out, "changed prod two default 7")
	c.want(0, "", "label", "np", "two", "-n", "prod", "app=hidden")
	next(t, out, "deleted prod two") // it no longer matches
	c.want(0, "", "delete", "np", "web", "-n", "prod")
	next(t, out, "deleted prod web")
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWatchAsJSONIsOneLineForEachChange(t *testing.T) {
	c := newCLI(t)
	out, _, stop := c.watching("get gns -w -o json")
	defer stop()
	c.want(0, gns("t"), "apply", "-f", "-")
	next(t, out, `{"type":"ADDED","object":{"apiVersion":"projectcalico.org/v3","kind":"GlobalNetworkSet"`)
}

func TestAWatchOutlivesAnOutageAndSaysSo(t *testing.T) {
	c := newCLI(t)
	c.store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	out, errs, stop := c.watching("get np -A -w -o json")
	defer stop()
	next(t, errs, "datastore is unavailable; trying again")
	c.store.Fail(nil)
	next(t, errs, "the datastore answers again")
	c.want(0, web, "apply", "-f", "-")
	next(t, out, `"ADDED"`)
}

func TestCompletionOffersKindsNamesNamespacesAndFormats(t *testing.T) {
	c := newCLI(t)
	c.want(0, "", "apply", "-f", prod)
	for _, tt := range []struct{ name, args, want string }{
		{"commands", "des", "describe"},
		{"kinds", "get networkp", "networkpolicies"},
		{"kinds behind a comma", "get tiers,networkp", "tiers,networkpolicies"},
		{"short names if nothing else fits", "get gnp", "gnp gnps"},
		{"names of a kind", "get gnp no", "no-telnet"},
		{"names of a namespace", "delete np -n prod ''", "db"},
		{"names that were given already are not", "get wep -n prod h1-k8s-web-eth0 h", "h2-k8s-db-eth0"},
		{"one name is enough", "patch np -n prod db ''", ""},
		{"namespaces", "get np -n ''", "prod"},
		{"formats", "get np -o cu", "custom-columns-file= custom-columns="},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var out, errs bytes.Buffer
			cmd := &command{stdio: Stdio{strings.NewReader(""), &out, &errs}}
			cmd.conn.open = func(context.Context) (datastore.Store, func(), error) { return c.store, func() {}, nil }
			if code := run(t.Context(), cmd, append([]string{"__completeNoDesc"}, words(tt.args)...)); code != 0 {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
			offers, _, _ := strings.Cut(out.String(), ":")
			if got := strings.Join(strings.Fields(offers), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	c.store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	contains(t, c.want(0, "", "__completeNoDesc", "get", "gnp", ""), ":4") // no names, and no error in the user's line
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		contains(t, c.want(0, "", "completion", shell), "__complete")
	}
}
