package calicoctl_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/twillnet/twill/internal/cli/calicoctl"
	"github.com/twillnet/twill/internal/cli/clitest"
)

// TestAddressesAreShownAsCalicoctlShowsThem: the frames, and what is printed of one address.
func TestAddressesAreShownAsCalicoctlShowsThem(t *testing.T) {
	s := start(t)
	s.follow(
		step{args: "create -f {}", text: list(pool4, node1)},
		step{args: "ipam show", want: "" +
			"+----------+-------------+-----------+------------+------------+\n" +
			"| GROUPING |    CIDR     | IPS TOTAL | IPS IN USE |  IPS FREE  |\n" +
			"+----------+-------------+-----------+------------+------------+\n" +
			"| IP Pool  | 10.0.1.0/24 |       256 |     0 (0%) | 256 (100%) |\n" +
			"+----------+-------------+-----------+------------+------------+"},
		step{args: "ipam show --show-configuration", has: []string{"|      PROPERTY      | VALUE |", "| StrictAffinity     | false |", "| AutoAllocateBlocks |  true |", "| MaxBlocksPerHost   |     0 |"}},
		step{args: "ipam show --show-borrowed", has: []string{"| IP | BORROWING-NODE | BLOCK | BLOCK OWNER | TYPE | ALLOCATED-TO |"}},
		step{args: "ipam show --ip=10.0.1.1", want: "10.0.1.1 is not assigned"},
		step{args: "ipam release --ip=10.0.1.1", fails: true, want: "IP address 10.0.1.1 is not assigned"},
		step{args: "ipam configure --strictaffinity=true", want: "Successfully set StrictAffinity to: true"},
		step{args: "ipam show --show-configuration", has: []string{"| StrictAffinity     |  true |"}},
	)
	// An address in use: of a block that upstream's IPAM has written.
	block := `{"cidr":"10.0.1.0/27","affinity":"host:node1","allocations":[0` + strings.Repeat(",null", 31) + `],"unallocated":[` + numbersFrom1() + `],"attributes":[{"handle_id":"h1","secondary":{"namespace":"prod","node":"node1","pod":"web-0"}}],"deleted":false,"sequenceNumber":1}`
	s.put("ipam/v2/assignment/ipv4/block/10.0.1.0-27", block)
	s.put("ipam/v2/handle/h1", `{"handleID":"h1","block":{"10.0.1.0/27":1},"deleted":false}`)
	s.put("ipam/v2/host/node1/ipv4/block/10.0.1.0-27", `{"state":"confirmed","deleted":false}`)
	s.follow(
		step{args: "ipam show --ip=10.0.1.0", want: "IP 10.0.1.0 is in use\nHandle ID: h1\nActive Owner Attributes:\n  namespace: prod\n  node: node1\n  pod: web-0"},
		step{args: "ipam show --show-blocks", has: []string{"| IP Pool  | 10.0.1.0/24 |       256 |     1 (0%) | 255 (100%) |", "| Block    | 10.0.1.0/27 |        32 |     1 (3%) |   31 (97%) |"}},
		step{args: "ipam release --ip=10.0.1.0", want: "Successfully released IP address 10.0.1.0"}, // the last of a block whose pool does not select the node: that is given up
		step{args: "ipam check -o {}", has: []string{"Found 0 IPAM blocks.\nIPAM blocks record 0 allocations.\n", "Found 1 active IP pools.\n", "Check complete; found 0 problems."}},
		step{args: "ipam check --show-all-ips", has: []string{"  10.0.1.0/24\nFound 1 active IP pools."}},
		step{args: "ipam release --from-report=/nowhere --from-report={}", fails: true, has: []string{"/nowhere"}},
		step{args: "get ippool -o wide -o json", fails: true, has: []string{"Invalid option"}},
	)
}

// TestReportsAreReleasedInCalicoctlsSteps: lock, check, release, unlock; and with --force without a lock.
func TestReportsAreReleasedInCalicoctlsSteps(t *testing.T) {
	s := start(t)
	s.follow(step{args: "create -f {}", text: list(pool4, node1)})
	leak := func() {
		s.put("ipam/v2/assignment/ipv4/block/10.0.1.0-27", `{"cidr":"10.0.1.0/27","affinity":"host:node1","allocations":[0`+strings.Repeat(",null", 31)+`],"unallocated":[`+numbersFrom1()+`],"attributes":[{"handle_id":"h1","secondary":{"namespace":"prod","node":"node1","pod":"web-0","note":"container","timestamp":"2020-01-01T00:00:00Z"}}],"deleted":false,"sequenceNumber":1}`)
		s.put("ipam/v2/handle/h1", `{"handleID":"h1","block":{"10.0.1.0/27":1},"deleted":false}`)
		s.put("ipam/v2/host/node1/ipv4/block/10.0.1.0-27", `{"state":"confirmed","deleted":false}`)
	}
	leak()
	report := filepath.Join(s.dir, "report.json")
	s.follow(
		step{args: "ipam check -o " + report, has: []string{"Found 1 IPs that are allocated in IPAM but not actually in use.\n", "Check complete; found 1 problems."}, not: []string{"10.0.1.0 leaked"}},
		step{args: "ipam release --from-report=" + report, fails: true, want: "data store is not locked. Either lock the data store, or re-run with --force"},
		step{args: "datastore migrate lock"},
		step{args: "ipam release --from-report=" + report, fails: true, has: []string{"the provided reports are all stale"}},
		step{args: "ipam check --show-problem-ips -o " + report, has: []string{"  10.0.1.0 leaked; attrs Main:h1 Extra:namespace=prod,"}},
		step{args: "ipam release --from-report=" + report, want: "Releasing 1 old IPs...\nReleased 1 IPs successfully\nReport didn't contain any handles to clean up.\nYou may now unlock the data store."},
		step{args: "datastore migrate unlock"},
		step{args: "ipam show --ip=10.0.1.0", want: "10.0.1.0 is not assigned"},
	)
	leak()
	s.follow(
		step{args: "ipam check -o " + report},
		step{args: "ipam release --force --from-report=" + report, has: []string{"WARNING: Data store is not locked. Ignoring due to --force option\n", "Released 1 IPs successfully\n"}},
	)
}

func numbersFrom1() string {
	var b strings.Builder
	for i := range 31 {
		b.WriteString(strings.Repeat(",", min(i, 1)) + strconv.Itoa(i+1))
	}
	return b.String()
}

// TestAPoolIsSplitWhileTheClusterIsLocked, and an export is made then, too.
func TestAPoolIsSplitWhileTheClusterIsLocked(t *testing.T) {
	s := start(t)
	const notLocked = "Datastore is not locked. Run the `calicoctl datastore migrate lock` command in order "
	s.follow(
		step{args: "create -f {}", text: list(pool4, node1)},
		step{args: "ipam split 10.0.1.0/24 4", fails: true, want: notLocked + "split the IP pools."},
		step{args: "datastore migrate export", fails: true, want: notLocked + "to begin migration."},
		step{args: "datastore migrate lock", want: "Datastore locked."},
		step{args: "ipam split 10.0.2.0/24 4", fails: true, has: []string{"Unable to find IP pool"}},
		step{args: "ipam split 3 --cidr=10.0.1.0/24", fails: true, has: []string{"Number to split CIDR into is not a valid power of 2"}},
		step{args: "ipam split 4 --cidr=10.0.1.0/24", has: []string{"IP Pool pool-a was successfully split into 4 smaller pools.", "Created split-pool-a-0 with CIDR 10.0.1.0/26.\n"}},
		step{args: "get ippool pool-a", fails: true, has: []string{notFound}},
		step{args: "get ippool split-pool-a-3 -o yaml", has: []string{"cidr: 10.0.1.192/26", "ipipMode: Always", "nodeSelector: foo == 'bar'"}},
		step{args: "datastore migrate export", has: []string{"kind: IPPoolList", "===", `"kind": "ClusterInformation"`}},
		step{args: "datastore migrate import -f {}", text: "", fails: true, want: "Invalid datastore type: etcdv3 to import to for datastore migration. Datastore type must be kubernetes"},
		step{args: "datastore migrate unlock", want: "Datastore unlocked."},
	)
}

// TestWhatIsNotDoneSaysWhatToDoInstead of an archive or a container.
func TestWhatIsNotDoneSaysWhatToDoInstead(t *testing.T) {
	t.Setenv("TWILL_BGP_SOCKET", filepath.Join(t.TempDir(), "none"))
	t.Setenv("TWILL_SOCKET", filepath.Join(t.TempDir(), "none"))
	start(t).follow(
		step{args: "node status", fails: true, has: []string{"Calico process is not running."}},
		step{args: "node run --dryrun --ip=1.2.3.4", has: []string{"twill node install --env=ETCD_ENDPOINTS=", "--env=IP=1.2.3.4"}},
		step{args: "cluster diags --since=5", fails: true, has: []string{"want a time with its unit"}},
	)
}

// TestTheConfigurationFileAndTheNamesOfTheBinary: calicoctl.cfg says where the datastore is; a plugin of kubectl's is calicoctl, too.
func TestTheConfigurationFileAndTheNamesOfTheBinary(t *testing.T) {
	s := start(t)
	s.follow(step{args: "create -f {}", text: pool4})
	os.Unsetenv("ETCD_ENDPOINTS")
	os.Unsetenv("DATASTORE_TYPE")
	s.follow(
		step{args: "get pools -c {}", text: "apiVersion: projectcalico.org/v3\nkind: CalicoAPIConfig\nspec: {datastoreType: etcdv3, etcdEndpoints: '" + endpoint + "'}", has: []string{"pool-a"}},
		step{args: "get pools -c {}", text: "kind: Other", fails: true, has: []string{"want CalicoAPIConfig"}},
	)
	t.Setenv("DATASTORE_TYPE", "")
	t.Setenv("ETCD_ENDPOINTS", endpoint)
	s.follow(step{args: "get pools", has: []string{"pool-a"}})
	for name, want := range map[string]bool{"/usr/bin/calicoctl": true, "calicoctl": true, "kubectl-calico": true, "twill": false, "calico": false} {
		if got := calicoctl.Called(name); got != want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

var (
	update      = flag.Bool("update", false, "write docs/calicoctl.md again; read it before you commit it")
	ofTheMoment = regexp.MustCompile(`resourceVersion: "\d+"`)
)

// TestThePageSaysWhatCalicoctlSays runs the commands of docs/calicoctl.md; blocks of YAML are files by the names in their first lines.
func TestThePageSaysWhatCalicoctlSays(t *testing.T) {
	page, err := filepath.Abs("../../../docs/calicoctl.md")
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	s := start(t)
	t.Chdir(s.dir)
	parts := strings.Split(string(text), "```")
	ran := 0
	for i, p := range parts {
		if file, ok := strings.CutPrefix(p, "yaml\n# "); ok {
			name, body, _ := strings.Cut(file, "\n")
			if err := os.WriteFile(name, []byte(body), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		block, ok := strings.CutPrefix(p, "console\n")
		if !ok {
			continue
		}
		var printed strings.Builder
		for line := range strings.Lines(block) {
			args, ok := strings.CutPrefix(strings.TrimSpace(line), "$ calicoctl ")
			if !ok {
				continue
			}
			code, out := s.run(args, "")
			ran++
			printed.WriteString("$ calicoctl " + args + "\n" + strings.TrimRight(out, "\n") + "\n")
			if code != 0 {
				printed.WriteString("[exit code 1]\n")
			}
		}
		parts[i] = "console\n" + printed.String()
		clitest.Equal(t, ofTheMoment.ReplaceAllString(printed.String(), ""), ofTheMoment.ReplaceAllString(block, ""))
	}
	if ran < 8 {
		t.Errorf("only %d commands ran", ran)
	}
	if *update {
		if err := os.WriteFile(page, []byte(strings.Join(parts, "```")), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
