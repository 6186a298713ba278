package kubecluster

import (
	"strings"
	"testing"
)

func TestTheImageOfPodsHasTheNameThatTheSuiteAsksFor(t *testing.T) {
	list := "registry.k8s.io/e2e-test-images/agnhost:2.55\nregistry.k8s.io/e2e-test-images/busybox:1.37.0-1\nregistry.k8s.io/e2e-test-images/agnhost:2.63.0\nregistry.k8s.io/e2e-test-images/agnhost:2.9\nregistry.example/agnhost-windows:1\n"
	i, err := agnhostImage(list, []byte("program"))
	if err != nil || i.Reference() != "registry.k8s.io/e2e-test-images/agnhost:2.63.0" || string(i.Files[0].Content) != "program" {
		t.Errorf("%s with %v, error %v", i.Reference(), i.Files, err)
	}
	if _, err := agnhostImage("registry.example/other:1\n", nil); err == nil || !strings.Contains(err.Error(), "registry.example/other:1") {
		t.Errorf("no such image: error %v", err)
	}
}

func TestWhatBecameOfEachCaseIsWritten(t *testing.T) {
	const passed = `{"ContainerHierarchyTexts":["[sig-network] Netpol"],"LeafNodeText":"lets pass","LeafNodeType":"It","State":"passed","RunTime":41000000000}`
	const failed = `{"ContainerHierarchyTexts":["[sig-network] Netpol"],"LeafNodeText":"denies","LeafNodeType":"It","State":"failed","Failure":{"Message":"Had 2 wrong results\nand more"}}`
	const skipped = `{"LeafNodeText":"not asked for","LeafNodeType":"It","State":"skipped"}`
	const before = `{"LeafNodeText":"","LeafNodeType":"SynchronizedBeforeSuite","State":"passed"}`
	const lost = `{"LeafNodeText":"","LeafNodeType":"SynchronizedBeforeSuite","State":"failed","Failure":{"Message":"no nodes"}}`
	for name, test := range map[string]struct {
		specs string
		want  string // in what is written
		err   string
	}{
		"all pass":         {before + "," + passed + "," + skipped, "passed     41s  [sig-network] Netpol: lets pass\n1 of 1 cases passed.\n", ""},
		"one fails":        {passed + "," + failed, "failed      0s  [sig-network] Netpol: denies\n                Had 2 wrong results\n1 of 2", "1 of 2 cases failed"},
		"none is run":      {before + "," + skipped, "", "no case was run"},
		"the suite cannot": {lost + "," + skipped, "no nodes", "1 of 1 cases failed"},
	} {
		t.Run(name, func(t *testing.T) {
			cases, err := netpolCases([]byte(`[{"SpecReports":[` + test.specs + `]}]`))
			if err != nil {
				t.Fatal(err)
			}
			var out strings.Builder
			c := Cluster{Out: &out}
			err = c.tellNetpol(cases)
			if !strings.Contains(out.String(), test.want) || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("error %v, and\n%s", err, &out)
			}
		})
	}
	if _, err := netpolCases([]byte("half")); err == nil {
		t.Error("a report that is none is no error")
	}
}
