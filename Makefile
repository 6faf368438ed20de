# Everything a developer runs. `make` alone lists the targets.

SHELL := /usr/bin/env bash
GO ?= go

VERSION ?= $(shell git describe --tags --always --dirty --abbrev=12 2>/dev/null || echo dev)

# Everything but what the race detector runs is compiled in one way, that of images and of the programs that tests build
# (test/kit/gobuild): what one step compiled, the others take from Go's cache.
PLAIN = export CGO_ENABLED=0 GOFLAGS="$$($(GO) env GOFLAGS) -trimpath"

# Test packages at once, one of them with the race detector. Each may start a control plane, and much of its time is waiting.
TEST_P ?= 3

# Go begins packages in the order in which they are named: first those that take minutes, or the last of them would run alone.
SLOW := $(addprefix ./, test/realnode test/e2e internal/controller test/soak internal/machost/remote internal/controller/selfregistering/runnerowner test/scale \
	internal/controller/machost test/hosts test/network internal/node/sandbox/tart internal/cli/doctor internal/server/ledger \
	internal/server/console internal/machost/steps internal/controller/selfregistering/runner internal/node/identity internal/server/recovery \
	internal/server/cluster test/chart)

# What runs with the race detector in a run of everything, beside the others: the whole system in one process, and what does most
# concurrently. make test-race runs everything with it, also internal/server/cluster and selfregistering/runnerowner, which take more than a
# minute.
export RACE := test/incidents internal/server/dispatch internal/server/events/... internal/server/periodic internal/server/http internal/controller/pool \
	internal/controller/jobcontainers internal/jobcontainer/guard internal/agent internal/node internal/node/sandbox/process internal/github internal/lib/...

# The packages with tests that make test leaves out, or runs in part (test/kit/deep).
DEEP = $(addprefix ./, $(sort $(shell grep -rl --include='*_test.go' test/kit/deep cmd internal test | xargs dirname)))

# Collecting garbage is a fifth of what control planes and tests compute. Where there is memory for four of them, it is done less
# often.
TEST_GOGC ?= $(shell awk '$$1 == "MemTotal:" && $$2 > 15000000 { n = 300 } END { print n ? n : 100 }' /proc/meminfo 2>/dev/null || echo 100)

PACKAGES   ?= $(SLOW) ./...
# Without vet's part, which would read all that a test depends on again: `make lint` has it. With -trimpath, Go's cache serves every clone. The tests on
# a real node take ten minutes alone, and twice that beside the others.
TEST_FLAGS ?= -timeout 40m -vet=off -trimpath
DEMO_FLAGS ?=
BENCH      ?= .
FUZZTIME   ?= 20s
SCALE_FLAGS ?= -pods 2000 -nodes 4
SUSTAINED_SIZE = -sustained-pods 10000 -sustained-nodes 500 -sustained-queued 100000 -sustained-accounts 1000 -sustained-jobs 40000 -sustained-samples 100 -sustained-length 1500s
SUSTAINED_FLAGS ?=
SOAK_FLAGS ?=
SCENARIO   ?= faults

# The directory of etcd, kube-apiserver and so on, downloaded or compiled when it is missing. Only for use inside a recipe, followed by &&.
GET_ASSETS = assets="$$($(PLAIN); $(GO) run ./scripts/devcluster)" && export BULLPEN_ASSETS="$$assets" KUBEBUILDER_ASSETS="$$assets"

# The same for tests and measurements, which download nothing: they run what is compiled from devcluster/.
FIND_ASSETS = export BULLPEN_ASSETS="$${BULLPEN_ASSETS:-off}" && $(GET_ASSETS)

# The programs of a Kubernetes node, compiled when they are missing. Only root on Linux can run one.
FIND_NODE = { [ "$$(uname -s)" != Linux ] || [ "$$(id -u)" != 0 ] || { node="$$($(PLAIN); $(GO) run ./scripts/devcluster -node)" && export BULLPEN_NODE_ASSETS="$$node"; }; }

# The images are the same bytes wherever they are built, if one toolchain builds and packs them.
IMAGES_GO = $(shell awk '$$1 == "go" { print $$2 }' images/go.mod)

# What test/realnode installs, compiled where no test's time-out counts.
BUILD_RELEASE = if [ "$$(id -u)" = 0 ]; then $(PLAIN) && \
	$(GO) build -tags=production -o /dev/null ./cmd/bullpen && $(GO) build -tags=production -o /dev/null ./cmd/bullpen-agent && $(GO) build -C tools -o /dev/null helm.sh/helm/v4/cmd/helm; fi

# Pods of runners copy it, and each probe starts it: small, and so without symbols.
BUILD_AGENT = $(PLAIN); $(GO) build -ldflags "-s -w -X main.version=$(VERSION)" -o bin/bullpen-agent ./cmd/bullpen-agent

GENERATED := api charts/bullpen/crds charts/rendered docs/incidents.md docs/reference internal/server/ledger/sqlcgen

.DEFAULT_GOAL := help

.PHONY: help
help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

##### Use it

.PHONY: build
build: ## Build bin/bullpen, bin/bullpen-migrate, and bin/bullpen-agent for the pods of runners
	@mkdir -p bin
	$(PLAIN); stamps="$$($(GO) run ./scripts/devcluster -ldflags)" && $(GO) build \
		-ldflags "-X main.version=$(VERSION) $$stamps" \
		-o bin/ ./cmd/bullpen ./cmd/bullpen-migrate
	$(BUILD_AGENT)

.PHONY: faults
faults: ## Build bin/bullpen-faults, which exits at named instants on request (go doc ./internal/lib/faultpoint)
	@mkdir -p bin
	$(PLAIN); stamps="$$($(GO) run ./scripts/devcluster -ldflags)" && $(GO) build -tags faultpoints \
		-ldflags "-X main.version=$(VERSION)-faults $$stamps" \
		-o bin/bullpen-faults ./cmd/bullpen
	$(BUILD_AGENT)

.PHONY: images
images: ## Build dist/: container images for amd64 and arm64 as an OCI archive, and their SBOMs (PUSH=registry/repository pushes them)
	GOFLAGS= GOTOOLCHAIN=go$(IMAGES_GO) $(GO) run -C images . -source .. -dist ../dist -version '$(VERSION)' $(if $(IMAGE),-name '$(IMAGE)') $(if $(PUSH),-push '$(PUSH)')

.PHONY: man
man: ## Write the man pages of bullpen and bullpen-migrate into dist/man
	$(PLAIN) SOURCE_DATE_EPOCH="$$(git log -1 --format=%ct 2>/dev/null || echo 0)"; $(GO) test -vet=off -count 1 -run '^TestMan_' \
		./cmd/bullpen ./cmd/bullpen-migrate -args -man '$(CURDIR)/dist/man' -man-version '$(VERSION)'

.PHONY: demo
demo: build ## Bring everything up on this machine and run a workflow through it (in containers: DEMO_FLAGS=--containers; more: bin/bullpen demo --help)
	@scripts/prerequisites.sh postgres $(if $(findstring --containers,$(DEMO_FLAGS)),cc node)
	@$(GET_ASSETS) $(if $(findstring --containers,$(DEMO_FLAGS)),&& $(FIND_NODE)) && bin/bullpen demo $(DEMO_FLAGS)

.PHONY: devcluster
devcluster: ## Download or compile the development control plane once, and print the directory it is in (BULLPEN_ASSETS=off compiles it)
	@$(PLAIN); $(GO) run ./scripts/devcluster

.PHONY: node
node: ## Compile the programs of a Kubernetes node once (kubelet, containerd, runc, CoreDNS, kube-router), and print the directory they are in
	@scripts/prerequisites.sh cc node
	@$(PLAIN); $(GO) run ./scripts/devcluster -node

##### Check it

.PHONY: test test-packages test-modules
test: ## Run all tests; installs PostgreSQL, PgBouncer, OpenSSH's server, Prometheus, Chromium, axe-core and GitHub's descriptions and compiles the devcluster and a node's programs when missing (a part: PACKAGES=./internal/agent/...)
	@scripts/prerequisites.sh postgres pgbouncer sshd prometheus chromium axe tinyproxy descriptions cc node
	@$(MAKE) --no-print-directory -j 2 test-packages test-modules

# The rows of job containers once more, on a kubelet, and the end of a certificate's life.
test-packages:
	@$(FIND_ASSETS) && $(FIND_NODE) && set -x && GOGC=$(TEST_GOGC) $(if $(filter ./...,$(PACKAGES)),TEST_P=$(TEST_P) scripts/test.sh,$(GO) test -race -p $(TEST_P)) $(TEST_FLAGS) $(if $(filter ./...,$(PACKAGES)),--) $(PACKAGES)
	$(if $(filter ./...,$(PACKAGES)),@$(FIND_ASSETS) && $(FIND_NODE) && $(PLAIN) && set -x && $(GO) test -tags kubelet -vet=off -parallel 6 ./test/jobcontainers)
	$(if $(filter ./internal/node/identity,$(PACKAGES)),@$(FIND_ASSETS) && $(PLAIN) && set -x && $(GO) test -vet=off -run RenewsItself ./internal/node/identity)

# Modules of their own, beside the others. What they compute takes only the time that tests of the whole system leave.
test-modules:
	$(PLAIN); cd devcluster && nice $(GO) test ./multicall/...
	$(PLAIN); cd images && nice $(GO) test -timeout 40m ./...

.PHONY: test-times
test-times: ## Show where the time of the last `make test` went: compiling, linking, running, per package
	@bin/testtimes table bin/test-times.jsonl bin/test-graph*.json

.PHONY: test-race
test-race: ## Run all tests with the race detector, also those that make test runs without it: an hour
	@scripts/prerequisites.sh postgres pgbouncer sshd prometheus chromium axe tinyproxy descriptions cc node
	@$(FIND_ASSETS) && $(FIND_NODE) && set -x && GOGC=$(TEST_GOGC) RACE= TEST_P=$(TEST_P) scripts/test.sh -timeout 60m -vet=off -trimpath -- $(SLOW) ./...

.PHONY: test-deep
test-deep: ## Run what takes minutes and is left out of make test: kills at every step, every fault point, large state spaces, long soaks: an hour
	@scripts/prerequisites.sh postgres pgbouncer sshd prometheus chromium axe tinyproxy descriptions cc node
	@$(BUILD_RELEASE)
	@$(PLAIN); cd tools/kubelinter && $(GO) build -trimpath -ldflags "-s -w" -o /dev/null golang.stackrox.io/kube-linter/cmd/kube-linter
	@$(FIND_ASSETS) && $(FIND_NODE) && export BULLPEN_TEST_DEEP=1 && set -x && $(GO) test -trimpath -vet=off -count 1 -p 2 -timeout 90m $(DEEP)
	$(PLAIN) BULLPEN_TEST_DEEP=1; cd images && $(GO) test -count 1 -timeout 20m ./...
	$(PLAIN); cd tools/goreleaser && $(GO) test -count 1 ./...

.PHONY: bench
bench: ## Measure latencies, throughput and memory, print one table, and write it to bin/bench.json (a part: BENCH=P1)
	@scripts/prerequisites.sh postgres cc node
	@mkdir -p bin
	@$(FIND_ASSETS) && $(FIND_NODE) && $(GO) test -run '^$$' -bench '$(BENCH)' -timeout 60m ./test/bench ./test/realnode -args -results $(CURDIR)/bin/bench.json

.PHONY: performance
performance: ## Write the tables of docs/internals/performance.md and README.md from runs of make bench (RUNS="bin/bench.json …", the oldest first)
	$(GO) run ./scripts/performance $(RUNS)

.PHONY: explain
explain: ## Run every statement of the ledger with EXPLAIN (ANALYZE, BUFFERS) among 10,000 and 1,000,000 queued jobs, and write docs/internals/queries.md: some minutes
	@scripts/prerequisites.sh postgres
	$(GO) test -run '^TestReads_' -count 1 -timeout 60m -v ./internal/server/ledger -args -ledger-jobs 1000000 -ledger-page

.PHONY: model
model: ## Walk the claim protocol's large state spaces too: a minute, and a gigabyte of memory
	BULLPEN_TEST_DEEP=1 $(GO) test -timeout 60m -run "Exhaustive|Stops" -v ./test/model

.PHONY: scale
scale: ## Take a pool of 2,000 synthetic pods through its life while jobs run (SCALE_FLAGS="-pods 500 -nodes 2")
	@scripts/prerequisites.sh postgres
	@$(FIND_ASSETS) && $(GO) test -run '^TestScale' -count 1 -timeout 60m -v ./test/scale -args $(SCALE_FLAGS)

.PHONY: scale-sustained
scale-sustained: ## Run 10,000 runners on 500 nodes with 100,000 queued jobs, report what grows, and write docs/scale.md: 2 hours (SUSTAINED_FLAGS="-sustained-for 30m", "-sustained-pods 1000 …")
	@scripts/prerequisites.sh postgres
	@$(FIND_ASSETS) && $(GO) test -run '^TestSustained' -count 1 -timeout 4h -v ./test/scale -args $(SUSTAINED_SIZE) -sustained-publish $(CURDIR)/docs $(SUSTAINED_FLAGS)

.PHONY: scale-macos
scale-macos: ## Take 2,000 pods through one node agent with the fake of Tart, and look for what leaks (PODS=500)
	$(GO) test -run TestManyPods -count 1 -timeout 60m -v ./internal/node/sandbox/tart -args -many-pods=$(or $(PODS),2000)

.PHONY: soak
soak: faults ## Run the whole system under random faults, and check what came of it (SOAK_FLAGS="-jobs 10000 -faults 500"; SCENARIO=replicas)
	@scripts/prerequisites.sh postgres
	@$(FIND_ASSETS) && $(GO) build -tags faultpoints -o bin/soak ./test/soak/run && bin/soak -scenario $(SCENARIO) $(SOAK_FLAGS)

.PHONY: soak-guards
soak-guards: ## Switch guards of the product off, one at a time, and see the soak's checker find each (SOAK_FLAGS="-only limit-lock -seed 7")
	@scripts/prerequisites.sh postgres
	@$(FIND_ASSETS) && $(GO) run ./test/soak/guards/run $(SOAK_FLAGS)

.PHONY: costs
costs: ## Count what a job costs the API server, and write it into docs/reference/costs.md (make test compares)
	@scripts/prerequisites.sh postgres
	@$(FIND_ASSETS) && $(GO) test -run '^TestCosts' -count 1 -timeout 20m -v ./test/scale -args -update

.PHONY: fuzz
fuzz: ## Fuzz every parser of outside data, for FUZZTIME each
	@FUZZTIME=$(FUZZTIME) scripts/fuzz.sh

.PHONY: lint
lint: bin/golangci-lint ## Check the linter's configuration, then the code (LINT_FLAGS="--timeout 0")
	bin/golangci-lint config verify
	$(PLAIN); bin/golangci-lint run $(LINT_FLAGS) ./...
	$(PLAIN); bin/golangci-lint run $(LINT_FLAGS) --build-tags faultpoints ./internal/lib/faultpoint/...
	$(PLAIN); bin/golangci-lint run $(LINT_FLAGS) --build-tags production ./cmd/bullpen/...
	$(PLAIN); bin/golangci-lint run $(LINT_FLAGS) --build-tags kubelet ./test/jobcontainers/...
	$(PLAIN); cd devcluster && ../bin/golangci-lint run $(LINT_FLAGS) --config ../.golangci.yaml ./multicall/...
	$(PLAIN); cd images && ../bin/golangci-lint run $(LINT_FLAGS) --config ../.golangci.yaml ./...

.PHONY: darwin
darwin: export GOOS = darwin
darwin: export GOARCH = arm64
darwin: ## Vet and build for Macs what runs on them: the node agent, the agent, and the command with all its parts
	$(PLAIN); $(GO) vet ./cmd/... ./internal/node/... ./internal/agent/... ./internal/machost/... ./internal/lib/logfile/...
	$(PLAIN); $(GO) build -tags production -o /dev/null ./cmd/bullpen
	$(PLAIN); $(GO) build -tags production -o /dev/null ./cmd/bullpen-agent

.PHONY: verify
verify: generate ## Regenerate everything; fail when the result differs from what is committed
	@if [ -n "$$(git status --porcelain -- $(GENERATED))" ]; then \
		git --no-pager diff -- $(GENERATED); git status --short -- $(GENERATED); \
		echo "verify: the generated files (above) differ from the commit: run 'make generate', and commit the result" >&2; exit 1; \
	fi
	$(GO) mod tidy -diff
	cd tools && $(GO) mod tidy -diff
	cd tools/kubelinter && $(GO) mod tidy -diff
	cd tools/goreleaser && $(GO) mod tidy -diff
	cd tools/registry && $(GO) mod tidy -diff
	cd devcluster && $(GO) mod tidy -diff
	cd images && $(GO) mod tidy -diff

##### Change it

.PHONY: generate
generate: bin/controller-gen bin/sqlc ## Regenerate deepcopy code, CRDs, queries, docs/incidents.md, the API's description, the pages of docs/reference and charts/rendered; installs PostgreSQL when it is missing
	bin/controller-gen object paths=./api/...
	bin/controller-gen crd:generateEmbeddedObjectMeta=true paths=./api/... output:crd:artifacts:config=charts/bullpen/crds
	$(PLAIN); $(GO) run ./scripts/crds
	cd internal/server/ledger && ../../../bin/sqlc generate
	$(PLAIN); $(GO) run ./scripts/incidents
	$(PLAIN); $(GO) run ./scripts/runnerkinds
	$(PLAIN); $(GO) run ./scripts/chart
	$(PLAIN); $(GO) run ./scripts/openapi
	$(PLAIN); $(GO) run ./scripts/reference
	@scripts/prerequisites.sh postgres
	$(PLAIN); $(GO) test -vet=off -count 1 -timeout 5m -run '^TestReference_' ./cmd/bullpen ./cmd/bullpen-migrate -args -update

.PHONY: fmt
fmt: bin/golangci-lint ## Format the code
	bin/golangci-lint fmt ./...

.PHONY: clean
clean: ## Remove what was built here (not the devcluster, which other clones may use)
	rm -rf bin dist

.PHONY: clean-cache
clean-cache: ## Remove every devcluster that was downloaded or compiled
	rm -rf "$${BULLPEN_CACHE:-$${XDG_CACHE_HOME:-$$HOME/.cache}/bullpen}/devcluster"

##### Tools, pinned in tools/go.mod

define tool
bin/$(1): tools/go.mod tools/go.sum
	@echo "building bin/$(1), once per version" >&2
	@mkdir -p bin
	@$(3) $(GO) build -C tools -trimpath -ldflags "-s -w" -o ../bin/$(1) $(2)
	@touch $$@
endef

$(eval $(call tool,controller-gen,sigs.k8s.io/controller-tools/cmd/controller-gen,CGO_ENABLED=0))
$(eval $(call tool,golangci-lint,github.com/golangci/golangci-lint/v2/cmd/golangci-lint,CGO_ENABLED=0))
$(eval $(call tool,sqlc,github.com/sqlc-dev/sqlc/cmd/sqlc,scripts/prerequisites.sh cc &&))
