package lab

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twillnet/twill/api"
)

// BenchmarkADD is what a runtime waits for: from the start of the plugin's process to its end, on a host with 200 endpoints
// and 1,000 policies of which five are for each endpoint. Each container is detached again before the next comes, at once
// or when its time has come.
func BenchmarkADD(b *testing.B) {
	for _, tt := range []struct {
		name  string
		every time.Duration
	}{{"ten a second", 100 * time.Millisecond}, {"one after the other", 0}} {
		b.Run(tt.name, func(b *testing.B) { benchmarkADD(b, tt.every) })
	}
}

func benchmarkADD(b *testing.B, every time.Duration) {
	const endpoints, policies = 200, 1000
	r := newCaller(b)
	store, err := r.store(b.Context())
	must(b, err)
	defer store.Close()
	for i := range policies {
		_, err := store.Create(b.Context(), api.Update{Key: key(api.KindNetworkPolicy, "default", fmt.Sprintf("p%d", i)), Value: fmt.Appendf(nil,
			`{"kind":"NetworkPolicy","apiVersion":"projectcalico.org/v3","metadata":{"name":"p%d","namespace":"default"},"spec":{"order":%d,"selector":"app == 'w%d'","types":["Ingress"],"ingress":[{"action":"Allow","protocol":"TCP","source":{"selector":"app == 'w%d'"},"destination":{"ports":[%d]}}]}}`,
			i, i, i%endpoints, (i+1)%endpoints, 1000+i)})
		must(b, err)
	}
	for i := range endpoints {
		r.time(i, r.container())
	}
	var took []time.Duration
	c := r.container()
	before := r.cpu()
	for next := time.Now(); b.Loop(); next = next.Add(every) {
		<-time.After(time.Until(next))
		c.conf.ContainerID = fmt.Sprintf("t%04d%08x", len(took), os.Getpid()) // one that no other has
		took = append(took, r.time(len(took), c))
		if out, err := r.run(c, len(took)-1, "DEL"); err != nil {
			b.Fatalf("%v: %s", err, out)
		}
	}
	for who, ticks := range r.cpu() {
		b.ReportMetric(float64(10*(ticks-before[who]))/float64(len(took)), "cpu-ms-"+who)
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds())/1000, "ms-p50")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "ms-p99")
}

// BenchmarkThousandADDs starts a thousand plugins at once.
func BenchmarkThousandADDs(b *testing.B) {
	const n = 1000
	r := newCaller(b)
	for b.Loop() {
		cs := make([]*container, n)
		for i := range cs {
			cs[i] = r.container()
		}
		var wait sync.WaitGroup
		began := time.Now()
		var slowest atomic.Int64
		for i, c := range cs {
			wait.Go(func() { slowest.Store(max(slowest.Load(), int64(r.time(i, c)))) })
		}
		wait.Wait()
		b.ReportMetric(n/time.Since(began).Seconds(), "ADDs/s")
		b.ReportMetric(time.Duration(slowest.Load()).Seconds(), "s-slowest")
		if left := r.left(); len(left) != n*(2+3) { // endpoint and handle; link and two routes
			b.Fatalf("%d things of %d containers, want %d", len(left), n, n*5)
		}
	}
}

// time attaches one container, which is labelled as w0 to w199, and says how long it took.
func (r *caller) time(i int, c *container) time.Duration {
	r.t.Helper()
	began := time.Now()
	if out, err := r.run(c, i, "ADD"); err != nil {
		r.t.Errorf("%v: %s", err, out)
	}
	return time.Since(began)
}

// run runs the plugin.
func (r *caller) run(c *container, i int, command string) (string, error) {
	r.t.Helper()
	conf, err := json.Marshal(map[string]any{
		"cniVersion": "1.1.0", "name": "net", "type": "twill", "socket": r.AgentSocket("h1"), "ipam": json.RawMessage(both),
		"args": map[string]any{"cni": map[string]any{"labels": []map[string]string{{"key": "app", "value": fmt.Sprintf("w%d", i%200)}}}},
	})
	must(r.t, err)
	var out bytes.Buffer
	cmd := r.plugin(c, conf, command)
	cmd.Stdout, cmd.Stderr = &out, &out
	must(r.t, r.host.ns.Start(cmd))
	err = cmd.Wait()
	return out.String(), err
}

// cpu is what each process of the host has used, in ticks of 10 ms.
func (r *caller) cpu() map[string]int {
	out := map[string]int{}
	node := r.Spec.Hosts[0].PID
	for who, pid := range map[string]int{"agent": r.agentPID(r.Spec.Hosts[0]), "etcd": childOf(node, "etcd")} {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		must(r.t, err)
		fields := strings.Fields(string(text))
		user, _ := strconv.Atoi(fields[13])
		system, _ := strconv.Atoi(fields[14])
		out[who] = user + system
	}
	return out
}
