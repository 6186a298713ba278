package show_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twillnet/twill/api"
	"github.com/twillnet/twill/internal/cli"
	"github.com/twillnet/twill/internal/cli/clitest"
	"github.com/twillnet/twill/internal/cli/console"
	"github.com/twillnet/twill/internal/datastore"
	"github.com/twillnet/twill/internal/datastore/memstore"
	"github.com/twillnet/twill/internal/datastore/storetest"
)

func TestGetNarrowsAndFormats(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	c.Want(0, "", "label", "node", "h1", "example.com/rack=r7")
	columns := clitest.File(t, "columns", "NAME NODE\n.metadata.name .spec.node\n")
	tmpl := clitest.File(t, "tmpl", "{{range .items}}{{.metadata.name}};{{end}}")
	for _, tt := range []struct{ name, args, want string }{
		{"labels as kubectl writes them", "get wep -A -l app=web -o name", "workloadendpoint/prod/h1-k8s-web-eth0"},
		{"a list of labels", "get wep -A -l 'app in (web,db),!zone' -o name", "workloadendpoint/prod/h1-k8s-web-eth0\nworkloadendpoint/prod/h2-k8s-db-eth0"},
		{"not equal is also absent", "get wep -A -l app!=web -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
		{"labels as selectors", `get wep -A -l 'app == "web" || app == "none"' -o name`, "workloadendpoint/prod/h1-k8s-web-eth0"},
		{"a field", "get wep -A --field-selector spec.node=h2 -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
		{"a field that differs", "get wep -A --field-selector spec.node!=h2 -o name", "workloadendpoint/prod/h1-k8s-web-eth0"},
		{"an element of a list", "get wep -A --field-selector spec.ipNetworks=10.65.0.2/32 -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
		{"nothing matches", "get wep -A -l app=x", "nothing found that the selectors match"},
		{"ps is the table", "get nodes -o ps", "NAME  IPV4          IPV6  AGE\nh1    192.0.2.1/24        1s"},
		{"custom columns", "get wep -A -o custom-columns=NAME:.metadata.name,FIRST:.spec.ipNetworks[0],POD:{.spec.pod},NO:.spec.no", "NAME             FIRST         POD  NO\nh1-k8s-web-eth0  10.65.0.1/32  web  <none>\nh2-k8s-db-eth0   10.65.0.2/32  db   <none>"},
		{"all elements, and a name with dots", `get nodes -o custom-columns=RACK:.metadata.labels.example\.com/rack`, "RACK\nr7"},
		{"columns from a file", "get wep -A -o custom-columns-file=" + columns, "NAME             NODE\nh1-k8s-web-eth0  h1\nh2-k8s-db-eth0   h2"},
		{"a template", "get wep -A -o 'go-template={{range .items}}{{.spec.node}} {{end}}'", "h1 h2"},
		{"a template of one", "get np db -n prod -o 'go-template={{.spec.order}}'", "100"},
		{"a template from a file", "get gnp -o go-template-file=" + tmpl, "no-telnet;"},
		{"jsonpath of a list", `get wep -A -o 'jsonpath={.items[*].metadata.name}{"\n"}'`, "h1-k8s-web-eth0 h2-k8s-db-eth0"},
		{"jsonpath of one, with text", "get np db -n prod -o 'jsonpath=order {.spec.order}.'", "order 100."},
		{"jsonpath loops and breaks lines", `get wep -A -o 'jsonpath={range .items[*]}{.metadata.name}{"\t"}{.spec.node}{"\n"}{end}'`, "h1-k8s-web-eth0\th1\nh2-k8s-db-eth0\th2"},
		{"jsonpath filters by text", `get wep -A -o 'jsonpath={.items[?(@.spec.node=="h2")].metadata.name}'`, "h2-k8s-db-eth0"},
		{"jsonpath filters by number", `get np -A -o 'jsonpath={.items[?(@.spec.order>99)].metadata.name}'`, "db"},
		{"jsonpath counts from the end", `get wep -A -o 'jsonpath={.items[-1:].spec.node}'`, "h2"},
		{"jsonpath of what is not there", `get wep -A -o 'jsonpath=<{.items[0].spec.no}{range .items[0].spec.none[*]}{.a}{end}>'`, "<>"},
		{"every kind", "get all -A -l app=db -o name", "workloadendpoint/prod/h2-k8s-db-eth0"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			clitest.Equal(t, clitest.Ageless(c.On(t).Want(0, "", clitest.Words(tt.args)...)), tt.want)
		})
	}
	for _, args := range []string{
		"get np -l 'a in (b'", "get np --field-selector x", "get np -o custom-columns=", "get np -o custom-columns=A", "get np -o custom-columns=A:.b[x]",
		"get np -o jsonpath={.a", "get np -o jsonpath={range}", "get np -o jsonpath={end}", "get np -o 'jsonpath={range .items[*]}{.a}'", "get np -o jsonpath={name}", "get np -o 'go-template={{'", "get np,gnp -w", "get np -w -o name", "get np -o custom-columns-file=" + tmpl,
	} {
		t.Run(args, func(t *testing.T) { clitest.Contains(t, c.On(t).Want(2, "", clitest.Words(args)...), "twill: ") })
	}
}

func TestExportLeavesOutWhatBelongsToTheCluster(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
	with := c.Want(0, "", "get", "np", "db", "-n", "prod", "-o", "yaml")
	clitest.Contains(t, with, "resourceVersion", "uid", "creationTimestamp")
	without := c.Want(0, "", "get", "np", "db", "-n", "prod", "-o", "yaml", "--export")
	for _, gone := range []string{"resourceVersion", "uid", "creationTimestamp"} {
		if strings.Contains(without, gone) {
			t.Errorf("%s is in\n%s", gone, without)
		}
	}
	clitest.Equal(t, newCLI(t).Want(0, without, "create", "-f", "-"), "networkpolicy/prod/db created")
}

// watching runs a watch, and returns its lines, its errors and what ends it.
func watching(c *clitest.CLI, args string) (lines *bufio.Scanner, errs *bufio.Scanner, stop func() int) {
	c.T.Helper()
	ctx, cancel := context.WithCancel(c.T.Context())
	outR, outW := io.Pipe()
	errR, errW := io.Pipe()
	env := c.Env(console.Stdio{In: strings.NewReader(""), Out: outW, Err: errW})
	code := make(chan int, 1)
	go func() {
		code <- cli.Execute(ctx, env, clitest.Words(args))
		_ = outW.Close()
		_ = errW.Close()
	}()
	return bufio.NewScanner(outR), bufio.NewScanner(errR), func() int {
		cancel()
		return <-code
	}
}

// discard reads output that the test does not check, so that its writer is not blocked.
func discard(s *bufio.Scanner) {
	for s.Scan() {
		continue
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
	c.Want(0, clitest.Web, "apply", "-f", "-")
	out, errs, stop := watching(c, "get np -A -w -l app!=hidden")
	go discard(errs)
	next(t, out, "CHANGE NAMESPACE NAME")
	next(t, out, "added prod web")
	c.Want(0, strings.Replace(clitest.Web, "name: web", "name: two", 1), "apply", "-f", "-")
	next(t, out, "added prod two")
	c.Want(0, "", "patch", "np", "two", "-n", "prod", "-p", "spec: {order: 7}")
	next(t, out, "changed prod two default 7")
	c.Want(0, "", "label", "np", "two", "-n", "prod", "app=hidden")
	next(t, out, "deleted prod two") // it no longer matches
	c.Want(0, "", "delete", "np", "web", "-n", "prod")
	next(t, out, "deleted prod web")
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// TestViewsOfAddressManagementAreWatched: they are no resources, but of keys that a node's agent writes.
func TestViewsOfAddressManagementAreWatched(t *testing.T) {
	c := newCLI(t)
	put := func(key, value string) {
		t.Helper()
		if err := datastore.Put(t.Context(), c.Store, api.Update{Key: key, Value: []byte(value)}); err != nil {
			t.Fatal(err)
		}
	}
	const claim = "/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26"
	configurations, errs, end := watching(c, "get ipamconfig -w")
	go discard(errs)
	defer end()
	c.Want(0, "", "ipam", "configure", "--strictaffinity=true")
	next(t, configurations, "CHANGE NAME")
	next(t, configurations, "added default true")
	c.Want(0, "", "ipam", "configure", "--strictaffinity=false")
	next(t, configurations, "changed default false")
	c.Want(0, "", "delete", "ipamconfig", "default")
	next(t, configurations, "deleted default")

	put(claim, `{"state":"pending"}`)
	claims, errs, stop := watching(c, "get blockaffinity -w")
	go discard(errs)
	next(t, claims, "CHANGE NAME")
	next(t, claims, "added n1-10-65-0-0-26 10.65.0.0/26 host n1 pending")
	put(claim, `{"state":"confirmed"}`)
	next(t, claims, "changed n1-10-65-0-0-26 10.65.0.0/26 host n1 confirmed")
	if err := c.Store.Delete(t.Context(), claim, api.Revision{}); err != nil {
		t.Fatal(err)
	}
	next(t, claims, "deleted n1-10-65-0-0-26")
	if code := stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

func TestWatchAsJSONIsOneLineForEachChange(t *testing.T) {
	c := newCLI(t)
	out, errs, stop := watching(c, "get gns -w -o json")
	go discard(errs)
	defer stop()
	c.Want(0, clitest.Gns("t"), "apply", "-f", "-")
	next(t, out, `{"type":"ADDED","object":{"apiVersion":"projectcalico.org/v3","kind":"GlobalNetworkSet"`)
}

func TestAWatchOutlivesAnOutageAndSaysSo(t *testing.T) {
	c := newCLI(t)
	c.Store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	out, errs, stop := watching(c, "get np -A -w -o json")
	defer stop()
	next(t, errs, "datastore is unavailable; trying again")
	c.Store.Fail(nil)
	next(t, errs, "the datastore answers again")
	go discard(errs) // a poor store ends watches at random, and two that brought nothing are said
	c.Want(0, clitest.Web, "apply", "-f", "-")
	next(t, out, `"ADDED"`)
}

// TestAWatchThatTheServerEndsIsRestartedWithoutAMessage: Kubernetes' API server ends each after some minutes. One that ends without an event is reported.
func TestAWatchThatTheServerEndsIsRestartedWithoutAMessage(t *testing.T) {
	c := newCLI(t)
	storetest.Steady(c.Store)
	var printed atomic.Bool
	out, errs, stop := watching(c, "get gns -A -w -o json")
	defer stop()
	messages := make(chan string)
	go func() {
		for errs.Scan() {
			printed.Store(true)
			messages <- errs.Text()
		}
	}()
	for i := range 3 {
		c.Want(0, clitest.Gns(fmt.Sprint("t", i)), "apply", "-f", "-")
		next(t, out, fmt.Sprintf(`"name":"t%d"`, i))
		c.Store.DropWatches(nil)
	}
	if printed.Load() {
		t.Errorf("it says %q", <-messages)
	}
	c.Store.Fail(func(o memstore.Op) error {
		if o.Verb == "next" {
			return datastore.ErrUnavailable
		}
		return nil
	})
	if got := <-messages; !strings.Contains(got, "trying again") {
		t.Errorf("watches bring nothing, and it says %q", got)
	}
	go func() {
		for range messages {
			continue
		}
	}()
}

func TestCompletionOffersKindsNamesNamespacesAndFormats(t *testing.T) {
	c := newCLI(t)
	c.Want(0, "", "apply", "-f", clitest.Prod)
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
			env := c.Env(console.Stdio{In: strings.NewReader(""), Out: &out, Err: &errs})
			if code := cli.Execute(t.Context(), env, append([]string{"__completeNoDesc"}, clitest.Words(tt.args)...)); code != 0 {
				t.Errorf("exit code %d: %s", code, errs.String())
			}
			offers, _, _ := strings.Cut(out.String(), ":")
			if got := strings.Join(strings.Fields(offers), " "); got != tt.want {
				t.Errorf("got %q, want %q", got, tt.want)
			}
		})
	}
	c.Store.Fail(func(memstore.Op) error { return datastore.ErrUnavailable })
	clitest.Contains(t, c.Want(0, "", "__completeNoDesc", "get", "gnp", ""), ":4") // no names, and no error in the user's line
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		clitest.Contains(t, c.Want(0, "", "completion", shell), "__complete")
	}
}
