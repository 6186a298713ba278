# make up: a working, protected three-host network on this machine. make test: all tests. See README.md.
export CGO_ENABLED = 0
BIN     := bin/twill
VERSION ?= $(shell git describe --always --dirty 2>/dev/null || echo dev)
LDFLAGS := -s -w -X github.com/twillnet/twill/internal/cli/conn.Version=$(VERSION)
GOLANGCI := github.com/golangci/golangci-lint/v2/cmd/golangci-lint@v2.15.0

.PHONY: iptables meddle dataplane-python vm vm-package docker openstack image packages packages-test release release-check chart build pb deps deps-bird up down test lint bench bench-parts race agree mutants conformance kube kube-down kube-test kube-netpol kube-api kube-conformance kube-chaos chaos chaos-mutants
build: ## bin/twill, one static binary; bin/twill-cni, its CNI plugin alone, which starts faster
	go build -trimpath -ldflags '$(LDFLAGS)' -o $(BIN) ./cmd/twill
	go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/twill-cni ./cmd/twill-cni

ARCH ?= $(shell go env GOARCH)
image: ## bin/twill-image-ARCH.tar: an OCI archive with these two binaries, and plugins of the CNI project that networks chain (ARCH=arm64 for another)
	GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags '$(LDFLAGS)' -o bin/image-$(ARCH)/twill ./cmd/twill
	GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags '-s -w -X main.version=$(VERSION)' -o bin/image-$(ARCH)/twill-cni ./cmd/twill-cni
	cd hack/image/plugins && GOOS=linux GOARCH=$(ARCH) go build -trimpath -ldflags '-s -w' -o ../../../bin/image-$(ARCH)/cni/ tool
	go run ./hack/image -binary bin/image-$(ARCH)/twill -arch $(ARCH) -version $(VERSION) -o bin/twill-image-$(ARCH).tar

# As of its last commit, so that equal sources make equal bytes.
EPOCH := SOURCE_DATE_EPOCH=$(shell git log -1 --format=%ct 2>/dev/null || echo 0)
packages: build ## bin/twill_VERSION_ARCH.deb and bin/twill-VERSION.ARCH.rpm (docs/install.md; MAINTAINER='Name <address>')
	rm -rf bin/package && $(EPOCH) $(BIN) node package bin/package
	cd hack/packages && go build -trimpath -o ../../bin/ . && cd ../.. && $(EPOCH) bin/packages -version $(VERSION) -arch $(shell go env GOARCH) $(if $(MAINTAINER),-maintainer '$(MAINTAINER)')

packages-test: build ## what such packages do when dpkg and RPM install, upgrade, remove and purge them, and what lintian says
	@sh scripts/deps.sh lintian rpm
	rm -rf bin/package && $(BIN) node package bin/package
	cd hack/packages && go test -count=1 -v ./...

# Binaries of a release are those of its images. ARCHES="amd64 arm64" for fewer. What else is in packages is the same for all, and written by the binary of
# this machine's kind.
ARCHES ?= amd64 arm64 ppc64le s390x
RELEASE := bin/release
release: build ## bin/release: binaries, packages, images and SBOMs of four architectures, the chart, and SHA256SUMS of it all: equal bytes for equal sources
	rm -rf $(RELEASE) bin/package && mkdir -p $(RELEASE) && $(EPOCH) $(BIN) node package bin/package
	cd hack/packages && go build -trimpath -o ../../bin/ . ./sbom
	for arch in $(ARCHES); do \
		$(EPOCH) $(MAKE) --no-print-directory image ARCH=$$arch VERSION=$(VERSION) && mv bin/twill-image-$$arch.tar $(RELEASE)/ \
		&& $(EPOCH) bin/packages -version $(VERSION) -arch $$arch -binaries bin/image-$$arch -o $(RELEASE) $(if $(MAINTAINER),-maintainer '$(MAINTAINER)') \
		&& for name in twill twill-cni; do cp bin/image-$$arch/$$name $(RELEASE)/$$name-linux-$$arch && $(EPOCH) bin/sbom -binary $(RELEASE)/$$name-linux-$$arch -version $(VERSION) -o $(RELEASE)/$$name-linux-$$arch.spdx.json || exit 1; done || exit 1; \
	done
	$(EPOCH) $(BIN) kube chart >$(RELEASE)/twill-chart.tgz
	cd $(RELEASE) && sha256sum * >../SHA256SUMS && mv ../SHA256SUMS . && ls -l

release-check: ## whether a release made twice, in two fresh clones in folders of other names, has the same bytes
	work=$$(mktemp -d) && trap 'rm -rf "$$work"' EXIT && for clone in one second; do \
		git clone -q . $$work/$$clone && $(MAKE) --no-print-directory -C $$work/$$clone release VERSION=$(VERSION) ARCHES="$(ARCHES)" || exit 1; \
	done && diff $$work/one/$(RELEASE)/SHA256SUMS $$work/second/$(RELEASE)/SHA256SUMS && echo "Both have the same bytes."

chart: build ## bin/twill-chart.tgz, a Helm chart of what `twill kube install` prints
	$(BIN) kube chart > bin/twill-chart.tgz

pb: ## what is generated from a .proto: api/relaypb, api/endpointpb, api/dataplanepb, api/felixpb; wants protoc
	go build -o bin/ google.golang.org/protobuf/cmd/protoc-gen-go && GOBIN=$(CURDIR)/bin go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
	for p in relay endpoint dataplane felix; do PATH=$(CURDIR)/bin:$$PATH protoc -I api/$${p}pb --go_out=api/$${p}pb --go_opt=paths=source_relative --go-grpc_out=api/$${p}pb --go-grpc_opt=paths=source_relative $$p.proto || exit 1; done
	go run mvdan.cc/gofumpt@v0.12.0 -w api/relaypb/*.go api/endpointpb/*.go api/dataplanepb/*.go api/felixpb/*.go

deps: ## what tests and demonstrations call: nft (to read what we program)
	@sh scripts/deps.sh nft

up: deps build ## three hosts, six workloads, real policy, and a matrix of real connections
	$(BIN) lab up

down: ## leave no trace
	$(BIN) lab down

# At a time: one more than there are processors, since much of what tests do is waiting.
TEST_PACKAGES := $(shell expr $$(nproc) + 1)
test: deps build ## everything, what waits most first; as root, so that kernel tests run
	@sh scripts/deps.sh systemd-analyze iptables-nft-restore iptables-legacy-restore ipset bird vtysh udhcpc dhclient /usr/lib/cni/portmap
	REQUIRE_ROOT=1 go test -count=1 -timeout 45m -p $(TEST_PACKAGES) ./internal/lab ./internal/dataplane/nft ./...

agree: deps ## kernel, memory, verdict and world over many random worlds, and a kernel that a driver in another process programs; prints the table
	REQUIRE_ROOT=1 go test -count=1 -timeout 30m -run 'TestKernelAgrees|TestMemoryAgrees' -v ./internal/agreetest -worlds 500 -paths 100
	REQUIRE_ROOT=1 go test -count=1 -timeout 30m -run 'TestKernelAgrees$$|TestHandCases' -v ./internal/agreetest -worlds 500 -on remote

# SAMPLE=1, as CI has it: a fixed sample of what takes minutes.
mutants: deps ## each listed fault must be seen by packets in a kernel, and one in what decides also without a kernel
	REQUIRE_ROOT=1 go test -count=1 -timeout 30m -run TestEachMutantIsCaught ./internal/agreetest -mutants$(if $(SAMPLE), -every 3)

WORLDS ?= 500
PATHS ?= 100
iptables: deps build ## what agree, mutants and the lab show of nftables, on both backends of iptables, and changes between all three under streams (docs/dataplanes.md); WORLDS, PATHS
	@sh scripts/deps.sh iptables-nft-restore iptables-legacy-restore ipset udhcpc dhclient
	for on in iptables-nft iptables-legacy; do REQUIRE_ROOT=1 go test -count=1 -timeout 90m -run 'TestKernelAgrees|TestHandCases|TestNothingStopsAHost' -v ./internal/agreetest -on $$on -worlds $(WORLDS) -paths $(PATHS) || exit 1; done
	REQUIRE_ROOT=1 go test -count=1 -timeout 90m -run TestEachMutantIsCaught ./internal/agreetest -mutants -on iptables-legacy$(if $(SAMPLE), -every 3)
	REQUIRE_ROOT=1 go test -count=1 -timeout 90m -run 'TestScriptOnIPTables|TestTheDataplaneChangesUnderStreams' ./internal/lab -iptables
	cd test/conformance && REQUIRE_ROOT=1 go test -count=1 -timeout 90m -v -run TestCyclonusOnIPTables . -iptables

MINUTES ?= 20
meddle: deps ## for MINUTES others flush, reload and change tables and sets beside policy of ours, on both backends of iptables; then what an agent at rest takes (docs/dataplanes.md); SEED=N replays
	@sh scripts/deps.sh iptables-nft-restore iptables-legacy-restore ipset
	REQUIRE_ROOT=1 go test -count=1 -timeout 0 -run TestOthersMeddleWithIPTables -v ./internal/lab -meddle $(MINUTES)m -seed $(or $(SEED),0)

dataplane-python: build ## an example of a driver in Python, made of the .proto and its page alone, judged as `twill dataplane conformance` judges any (docs/remote-dataplane.md)
	@sh scripts/deps.sh protoc /usr/lib/python3/dist-packages/grpc /usr/lib/python3/dist-packages/google/protobuf
	sh test/dataplane/judge.sh $(BIN)

conformance: deps build ## cyclonus' 230 cases: its judge, ours and real connections agree about each; what we print for Helm and Prometheus, by their own code
	@sh scripts/deps.sh iptables-nft-restore iptables-legacy-restore ipset
	cd test/monitoring && go test -count=1 ./...
	cd test/conformance && REQUIRE_ROOT=1 go test -count=1 -timeout 30m -v ./...

deps-bird: ## BIRD, for the hosts of scenarios that keep it
	@sh scripts/deps.sh bird

# Packages with tests on a real Kubernetes API server (internal/kubetest).
KUBE := internal/kubetest internal/datastore/kubestore internal/datastore/kubestore/crds internal/podtest internal/kubemirror internal/relay/discovery
# Packages of which some tests are: those with Kubernetes or APIServer in their names.
KUBE_SOME := internal/cli/caliconode internal/cli/doctor internal/ipam internal/lab internal/outagetest
# Packages of the command line whose tests are run once more with an API server for their store, in each form; what cannot be there is
# in internal/cli/testdata/in-memory-alone.tsv, each with its reason (-left-out fails if one could).
KUBE_CLI := internal/cli/cluster internal/cli/explain internal/cli/get internal/cli/ipam internal/cli/manifests internal/cli/resources internal/cli/show
kube-api: deps-bird ## those tests, on Kubernetes' own programs, which test/kube builds once, next to Go's build cache
	go run ./hack/kube
	REQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout 30m $(KUBE:%=./%)
	REQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout 30m -run 'Kubernetes|APIServer' $(KUBE_SOME:%=./%)
	cd test/conformance && REQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout 30m -run APIServer . -each 30
	REQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout 30m -run APIServer ./internal/chaostest
	for group in projectcalico.org/v3 crd.projectcalico.org/v1; do REQUIRE_KUBE=1 go test -count=1 -timeout 30m $(KUBE_CLI:%=./%) -on-api-server $$group \
		&& REQUIRE_KUBE=1 go test -count=1 -timeout 30m -run 'Guide|OneWord|AnotherNamespace|Complete|Half|Directory' ./internal/cli -on-api-server $$group || exit 1; done

kube-conformance: deps ## all of cyclonus' cases, and the conformance tests of cluster-wide policies, with pods and policies in a real API server; kube-api has a fixed sample
	go run ./hack/kube
	cd test/conformance && REQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout 60m -v -run APIServer .

CLUSTER := (cd hack/image/plugins && go build -trimpath -ldflags '-s -w' -o ../../../bin/cni/ tool) && go build -trimpath -o bin/kube/kubecluster ./hack/kubecluster && go build -trimpath -ldflags '-s -w' -o bin/kube/probe ./hack/kubecluster/probe
kube: deps build ## a Kubernetes cluster of three nodes on this machine, with Twill by its own manifest (docs/kubernetes-cluster.md)
	@sh scripts/deps.sh containerd runc
	go run ./hack/kube -nodes
	$(CLUSTER) && bin/kube/kubecluster up

kube-down: ## leave no trace of it
	go build -trimpath -o bin/kube/kubecluster ./hack/kubecluster && bin/kube/kubecluster down

kube-test: deps build ## tests on such a cluster, which they start and take down
	@sh scripts/deps.sh containerd runc
	go run ./hack/kube -nodes
	$(CLUSTER) && REQUIRE_CLUSTER=1 go test -count=1 -timeout 20m -v ./internal/kubecluster

FOCUS ?= sample
kube-netpol: deps build ## Kubernetes' own tests of NetworkPolicies on such a cluster: a fixed part of them; FOCUS= all; FOCUS=REGEXP those
	@sh scripts/deps.sh containerd runc
	go run ./hack/kube -nodes -e2e
	$(CLUSTER) && bin/kube/kubecluster up && bin/kube/kubecluster -focus '$(FOCUS)' netpol && bin/kube/kubecluster down

docker: deps ## two hosts with Debian's dockerd, and our drivers for its networks (docs/docker.md)
	@sh scripts/deps.sh dockerd docker-compose
	REQUIRE_DOCKER=1 REQUIRE_ROOT=1 go test -count=1 -timeout 30m -v -run TestDocker ./internal/lab$(if $(SAMPLE), -compose 10)

openstack: deps build ## Debian's neutron-server with our mechanism driver (docs/openstack.md); SCENARIO=FILE for one; SAMPLE=1: a port's packets, and its live migration under streams
	root=$$(sh scripts/openstack.sh) figures=$$(mktemp) && export OPENSTACK_ROOT=$$root OPENSTACK_FIGURES=$$figures OPENSTACK_DRIVER=$(CURDIR)/openstack/networking_twill OPENSTACK_SCENARIOS=$(CURDIR)/testdata/openstack && \
	{ bin/twill lab run $(or $(SCENARIO),$(if $(SAMPLE),testdata/openstack/neutron.txt testdata/openstack/migration.txt,testdata/openstack/*.txt)); status=$$?; cat $$figures; rm $$figures; exit $$status; }

CHAOS ?= 3m
chaos: deps ## three hosts under traffic and random faults, for CHAOS; SEED=N replays, KINDS=a,b chooses (docs/chaos.md)
	REQUIRE_ROOT=1 go test -count=1 -timeout 0 -run 'TestChaos$$' -v ./internal/chaostest -chaos $(CHAOS) -seed $(or $(SEED),0) -kinds '$(KINDS)'

kube-chaos: deps ## the same with a real API server for their datastore, and with faults of its own (docs/chaos.md)
	go run ./hack/kube
	REQUIRE_KUBE=1 REQUIRE_ROOT=1 go test -count=1 -timeout 0 -run 'TestChaosOnAPIServer$$' -v ./internal/chaostest -chaos $(CHAOS) -seed $(or $(SEED),0) -kinds '$(KINDS)'

chaos-mutants: deps ## each listed fault in a loop must be seen by a short run of chaos
	REQUIRE_ROOT=1 go test -count=1 -timeout 0 -run 'TestEachMutantOfALoopIsCaught$$' -v ./internal/chaostest -mutants

# Scenarios of tunnels, and packages with tests that need a kernel which has them.
VM_SCRIPTS := vxlan ipip wireguard wireguard_v6
VM_TESTS   := internal/dataplane/tunnel
vm: build ## in a virtual machine with Debian's kernel (emulated): what this machine's kernel may lack; nothing is skipped there
	@sh scripts/deps.sh qemu-system-x86_64 mmdebstrap mke2fs
	rm -rf bin/vm && mkdir -p bin/vm && go test -c -o bin/vm/ $(VM_TESTS:%=./%)
	go run ./hack/vm -twill $(BIN) -test bin/vm $(VM_SCRIPTS:%=testdata/script/%.txt)

vm-package: packages ## in such a machine, with systemd: the package is installed, upgraded under packets, over a reboot and daemons that die, and removed
	@sh scripts/deps.sh qemu-system-x86_64 mmdebstrap mke2fs
	rm -rf bin/vm && for v in v1.0.0 v1.0.1; do bin/packages -version $$v -o bin/vm >/dev/null || exit 1; done
	go run ./hack/vm -script testdata/vm/package.sh bin/vm/*.deb

lint: ## go vet, and golangci-lint (.golangci.yml) over code and tests; the linter is built once, and kept in Go's build cache
	go vet ./...
	go run $(GOLANGCI) run

# What decides and what loops, without a kernel: Go's race detector sees what their tests do at once. Not yet internal/dataplane,
# whose tests change their fakes while the loop that uses them sleeps in virtual time, which the detector takes for a race.
RACY := api/selector internal/attach internal/autohep internal/bgp/bfd internal/bgp/nodestatus internal/bgp/plan internal/calc \
	internal/dataplane/attribution internal/dataplane/delta internal/dataplane/flows internal/datastore/memstore internal/resources/decommission internal/health \
	internal/ifmon internal/ipam internal/kubecontrollers internal/leader internal/metrics internal/node internal/nodekeep internal/serve internal/status internal/syncer internal/upkeep
race: ## the race detector on pure packages and loops; it needs cgo and a C compiler
	@if command -v "$${CC:-gcc}" >/dev/null; \
	then CGO_ENABLED=1 go test -race -count=1 -timeout 30m $(RACY:%=./%); \
	else echo "race: skipped: there is no C compiler ($${CC:-gcc}), which Go's race detector needs"; fi

# BENCH: flags, such as BENCH='-policies 10,100 -pairs 2 -points 10x1000 -rounds 1 -each 5 -results /tmp/look.json -page=' for a look of a minute; all: go run ./hack/bench -h
bench: deps build ## whole agents compared with scripts and with no policy, by packets: tables and plots of docs/benchmarks.md (30 to 60 minutes)
	@sh scripts/deps.sh iptables-nft-restore ipset
	go run ./hack/bench -twill $(BIN) -version $(VERSION) -page docs/benchmarks.md $(BENCH)

bench-parts: ## Go's benchmarks of all packages
	go test -run xxx -bench . -benchmem ./api/... ./internal/...
