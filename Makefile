# Every target says what it does; `make` lists them.
.DEFAULT_GOAL := help

GO            ?= go
BIN           := $(CURDIR)/bin
GOLANGCI_LINT := v2.15.0
TRAEFIK       := v3.6.12
HELM          := v3.22.0
KUBECONFORM   := v0.8.0
COMPOSE_GO    := v2.16.2
BUF           := v1.73.0
PROTOC_GO     := v1.36.12
PROTOC_GRPC   := v1.6.2
CYCLONEDX     := v1.10.0
GOVULNCHECK   := v1.9.0
GORELEASER    := v2.15.1

.PHONY: help
help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# Packages whose tests wait for servers come first, and run beside those that compute: -p 4 on two cores.
# make lint runs vet. Nobody debugs these binaries: without DWARF a compiler takes four fifths of its CPU, and without
# inlining three quarters of that; the tests are not slower by it.
WAITING  = ./store/mysql ./store/postgres ./store/redis ./cmd/headgate ./catalog ./store/front
# Packages of others that compute on what they were given: the race detector has nothing to find in them, and takes most
# of its time there. SQLite is C that was translated into Go: its tests took 35 seconds of CPU, and take 9.
PURE     = modernc.org/... go/... regexp/... text/template/... crypto/internal/fips140/... github.com/redis/rueidis/internal/cmds
# In the environment, so that what a test builds is compiled already.
RACE     = GOFLAGS="$(GOFLAGS) -race '-gcflags=all=-dwarf=false -l' $(PURE:%='-gcflags=%=-race=false -dwarf=false')"
SERVERS  = $(GO) run ./internal/testing/servers
# A process with the race detector sleeps for a second at its end otherwise: each test binary, and each program of a test.
export GORACE = atexit_sleep_ms=0

.PHONY: test
test: ## before each commit: all packages, one real server of each kind, the race detector; TESTFLAGS=-count=1 for no cached results
	@$(RACE) $(SERVERS) $(GO) test -p 4 -vet=off -toolexec="env GOGC=400" -ldflags="-s -w" $(TESTFLAGS) $(WAITING) ./...

# Beside loops that never pause a run takes five times as long, and beside these twice.
BUSY = timeout 2h sh -c 'while :; do timeout 20 yes >/dev/null; sleep 20; done'

.PHONY: steady
steady: ## run make test N (20) times without cached results: alone, beside eight busy loops, with GOMAXPROCS=1
	@mkdir -p $(BIN); failed=0; trap 'kill $$busy 2>/dev/null' EXIT; trap 'exit 130' INT TERM; \
	for i in $$(seq $(or $(N),20)); do \
	  how=alone; procs=; busy=; case $$((i % 4)) in \
	    2) how="beside 8 busy loops"; for l in 1 2 3 4 5 6 7 8; do $(BUSY) & busy="$$busy $$!"; done;; \
	    0) how=GOMAXPROCS=1; procs=$$how;; \
	  esac; \
	  env $$procs $(MAKE) test TESTFLAGS=-count=1 >$(BIN)/steady-$$i.log 2>&1 && said=ok || { said=FAILED; failed=1; }; \
	  [ -z "$$busy" ] || kill $$busy; echo "run $$i $$how: $$said: bin/steady-$$i.log"; \
	done; exit $$failed

.PHONY: engines
engines: ## before a change of law, store or catalog: all other servers, topologies, deploy, documentation; ENGINES="mysql valkey" for some
	$(GO) run ./internal/testing/dbtest/engines $(ENGINES)

.PHONY: nightly
nightly: ## each night, for hours: all of the above with more histories, chaos, simulations, fuzzing, packaging; STEPS="sim fuzz" for some
	@mkdir -p $(BIN); failed=0; \
	seed=$(or $(SEED),$$(date +%s)); export HEADGATE_TEST_TIER=nightly HEADGATE_TEST_SEED=$$seed; \
	printf '| step | seed | result | minutes |\n|---|---|---|---|\n' | tee $(BIN)/nightly.md; \
	for step in $(or $(STEPS),race engines histories sim planted chaos fuzz packaging); do \
	  begin=$$(date +%s); \
	  timeout 6h $(MAKE) $$step SEED=$$seed SIM="-for 1h -json -from $$seed" FUZZTIME=2m >$(BIN)/nightly-$$step.log 2>&1 && \
	    said=ok || { said=FAILED; failed=1; }; \
	  echo "| $$step | $$seed | $$said | $$((($$(date +%s) - begin) / 60)) |" | tee -a $(BIN)/nightly.md; \
	done; exit $$failed

.PHONY: race
race: ## run all tests of TIER (nightly) but those of make planted, with the race detector everywhere
	HEADGATE_TEST_TIER=$(or $(TIER),nightly) $(SERVERS) $(GO) test -race -timeout 3h -skip PlantedFaultsAreFound $(TESTFLAGS) ./...

.PHONY: packaging
packaging: chart compose alerts image reproducible sbom ## check what a release consists of

.PHONY: tours
tours: ## run the commands of the five-minute tours (docs/tour-*.md), one tour after another, and print the seconds of each
	HEADGATE_TEST_TIER=engines $(GO) test -count=1 -v -parallel 1 -run '^TestDocumentation(WithServers)?$$/^docs$$/^tour-' ./internal/testing/doctest

.PHONY: traefik
traefik: $(BIN)/traefik-$(TRAEFIK) ## build Traefik once, which takes some minutes, and test its configuration
	HEADGATE_TEST_TIER=engines $(GO) test -race -run /traefik ./deploy

$(BIN)/traefik-$(TRAEFIK): # not by go install: its go.mod replaces modules
	$(GO) mod download github.com/traefik/traefik/v3@$(TRAEFIK)
	rm -rf $(BIN)/traefik.tmp && mkdir -p $(BIN) && cp -r $$($(GO) env GOMODCACHE)/github.com/traefik/traefik/v3@$(TRAEFIK) $(BIN)/traefik.tmp
	chmod -R u+w $(BIN)/traefik.tmp
	cd $(BIN)/traefik.tmp && $(GO) build -mod=mod -trimpath -o $@ ./cmd/traefik
	rm -rf $(BIN)/traefik.tmp

.PHONY: chart
chart: $(BIN)/helm $(if $(SCHEMAS),$(BIN)/kubeconform) ## lint and render the Helm chart, test what comes out; SCHEMAS=default compares it with the schemas of Kubernetes
	HEADGATE_TEST_HELM=$(BIN)/helm HEADGATE_TEST_KUBECONFORM="$(if $(SCHEMAS),$(BIN)/kubeconform -schema-location $(SCHEMAS))" \
	  $(GO) test -count=1 ./deploy/helm

$(BIN)/helm: Makefile
	GOBIN=$(BIN) $(GO) install helm.sh/helm/v3/cmd/helm@$(HELM)

$(BIN)/kubeconform: Makefile
	GOBIN=$(BIN) $(GO) install github.com/yannh/kubeconform/cmd/kubeconform@$(KUBECONFORM)

.PHONY: compose
compose: $(BIN)/compose-spec ## check the compose file by the reference implementation of its specification
	HEADGATE_TEST_COMPOSE=$(BIN)/compose-spec $(GO) test -count=1 -run Compose ./deploy

$(BIN)/compose-spec: Makefile
	GOBIN=$(BIN)/compose-spec.tmp $(GO) install github.com/compose-spec/compose-go/v2/cmd@$(COMPOSE_GO)
	mv $(BIN)/compose-spec.tmp/cmd $@ && rmdir $(BIN)/compose-spec.tmp

.PHONY: alerts
alerts: ## check and test the alert rules, and the configuration of Prometheus, by promtool
	HEADGATE_TEST_TIER=engines $(GO) test -count=1 -v -run AlertRules ./deploy

.PHONY: image
image: ## carry out the Dockerfile without Docker, and start what it makes
	HEADGATE_TEST_TIER=nightly $(GO) test -count=1 -v -run Image ./deploy

.PHONY: histories
histories: ## compare HISTORIES (20000) random histories with the laws on every server, FEW (2000) on clusters
	$(GO) run ./internal/testing/dbtest/engines -histories $(or $(HISTORIES),20000) -few $(or $(FEW),2000) $(ENGINES)

.PHONY: sim
sim: ## search simulations for faults for a minute; SIM="-for 8m -json" for longer, SIM="-seed N" for one again
	$(GO) test -c -o $(BIN)/sim.test ./internal/testing/sim
	$(BIN)/sim.test -test.run '^TestSim$$' -test.timeout 0 -for 1m $(SIM)

.PHONY: planted
planted: ## look for each of 54 planted faults in a thousand simulations each; PLANTED=NAME for some
	HEADGATE_TEST_TIER=nightly $(GO) test -count=1 -timeout 0 -v -run '^TestPlantedFaultsAreFound$$/($(PLANTED))' ./internal/testing/sim/planted

.PHONY: chaos
chaos: ## break real servers for FOR (10m) each and check the bounds; ENGINE="postgres redis" for some, all for all
	@mkdir -p $(BIN)
	HEADGATE_TEST_TIER=nightly $(GO) test -count=1 -timeout 0 -v -run '^TestChaos$$' ./internal/testing/chaos -args -for $(or $(FOR),10m) -engines "$(or $(ENGINE),all)" $(if $(SEED),-seed $(SEED)) -table $(BIN)/chaos.md

# The packages whose tests are run by make cover: all but those that take minutes.
QUICK = $$($(GO) list ./... | grep -v -e /cmd/ -e /deploy -e /doctest -e /chaos -e /engines -e store/postgres \
  -e store/mysql -e store/redis -e internal/testing/sim -e internal/testing/dbtest)

.PHONY: cover
cover: ## print what share of the statements of each package the tests of COVER (the quick packages) execute
	@dir=$$(mktemp -d) && \
	  $(GO) test -short -cover -coverpkg=./... $(or $(COVER),$(QUICK)) -args -test.gocoverdir=$$dir && \
	  $(GO) tool covdata percent -i=$$dir; rm -rf $$dir

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (default 20s)
	@for pkg in $$($(GO) list ./...); do \
	  for f in $$($(GO) test -list '^Fuzz' $$pkg | grep '^Fuzz'); do \
	    echo "$$pkg $$f"; $(GO) test -run '^$$' -fuzz "^$$f$$" -fuzztime $${FUZZTIME:-20s} $$pkg || exit 1; \
	  done; \
	done

.PHONY: proto
proto: $(BIN)/buf $(BIN)/protoc-gen-go $(BIN)/protoc-gen-go-grpc ## lint internal/server/api/proto and generate internal/server/api/headgatepb; a test tells when that is due
	cd internal/server/api/proto && $(BIN)/buf format -w && $(BIN)/buf lint && $(BIN)/buf generate
	cd internal/server/api/proto && sha256sum headgate/v1/headgate.proto > ../headgatepb/headgate.proto.sha256

$(BIN)/buf: Makefile
	GOBIN=$(BIN) $(GO) install github.com/bufbuild/buf/cmd/buf@$(BUF)

$(BIN)/protoc-gen-go: Makefile
	GOBIN=$(BIN) $(GO) install google.golang.org/protobuf/cmd/protoc-gen-go@$(PROTOC_GO)

$(BIN)/protoc-gen-go-grpc: Makefile
	GOBIN=$(BIN) $(GO) install google.golang.org/grpc/cmd/protoc-gen-go-grpc@$(PROTOC_GRPC)

# Modules of their own, so that what they need is no dependency of the project.
MODULES = bench examples/mcp examples/gateway

.PHONY: lint
lint: $(BIN)/golangci-lint ## check format, imports between packages, and the linters
	$(BIN)/golangci-lint run ./...
	set -e; for m in $(MODULES); do (cd $$m && $(BIN)/golangci-lint run --config $(CURDIR)/.golangci.yml ./...); done

$(BIN)/golangci-lint: Makefile
	GOBIN=$(BIN) $(GO) install github.com/golangci/golangci-lint/v2/cmd/golangci-lint@$(GOLANGCI_LINT)

.PHONY: tidy
tidy: ## check that go.mod and go.sum are complete
	$(GO) mod tidy -diff
	set -e; for m in $(MODULES); do (cd $$m && $(GO) mod tidy -diff); done

.PHONY: licenses
licenses: ## rewrite cmd/headgate/licenses.txt after a change of go.mod
	HEADGATE_TEST_TIER=nightly UPDATE_LICENSES=1 $(GO) test ./cmd/headgate -run TestLicenses

.PHONY: sbom
sbom: $(BIN)/cyclonedx-gomod ## write bin/headgate.cdx.json: the modules that the command is built of, with their licences
	GOFLAGS='-tags=$(TAGS)' $(BIN)/cyclonedx-gomod app -licenses -json -main cmd/headgate -output $(BIN)/headgate.cdx.json .

$(BIN)/cyclonedx-gomod: Makefile
	GOBIN=$(BIN) $(GO) install github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod@$(CYCLONEDX)

.PHONY: vulncheck
vulncheck: $(BIN)/govulncheck ## look for known vulnerabilities in what is called; it needs https://vuln.go.dev
	$(BIN)/govulncheck ./...

$(BIN)/govulncheck: Makefile
	GOBIN=$(BIN) $(GO) install golang.org/x/vuln/cmd/govulncheck@$(GOVULNCHECK)

.PHONY: bench
bench: ## compare with rivals, articles and bare statements; BENCH="-only postgres -rounds 1 -time 300ms" for a part
	cd bench && $(GO) run . $(BENCH)

# What a release says of itself. In a folder that git does not know, name them: make build VERSION=v0.4.0
VERSION ?= $(shell git describe --tags --match 'v*' --dirty 2>/dev/null)
COMMIT  ?= $(shell git rev-parse HEAD 2>/dev/null)
DATE    ?= $(shell TZ=UTC0 git log -1 --date=format-local:%Y-%m-%dT%H:%M:%SZ --format=%cd 2>/dev/null)
# Without cgo the binary is static; with -trimpath, and without what git says of the folder, it is the same from each
# folder. Without its symbols it has a third fewer bytes, and a panic still names functions and lines.
LDFLAGS  = -s -w -X main.release=$(VERSION) -X main.commit=$(COMMIT) -X main.date=$(DATE)
# What the command has beyond the packages that each program needs: docs/installing.md.
TAGS    ?= headgate_otel
GO_BUILD = CGO_ENABLED=0 $(GO) build -trimpath -buildvcs=false -tags '$(TAGS)' -ldflags '$(LDFLAGS)'

.PHONY: build
build: ## build ./bin/headgate, static and stamped; TAGS=headgate_otel,headgate_noredis leaves a store out: docs/installing.md
	$(GO_BUILD) -o $(BIN)/headgate ./cmd/headgate

.PHONY: man
man: ## write the manual pages into bin/man
	rm -rf $(BIN)/man
	CGO_ENABLED=0 $(GO) run -trimpath -buildvcs=false -tags headgate_man -ldflags '$(LDFLAGS)' ./cmd/headgate man $(BIN)/man

.PHONY: completions
completions: build ## write what shells complete into bin/completions
	rm -rf $(BIN)/completions && mkdir -p $(BIN)/completions
	for shell in bash zsh fish powershell; do $(BIN)/headgate completion $$shell >$(BIN)/completions/headgate.$$shell || exit 1; done

# The second build has an empty cache: nothing of the first is in it.
.PHONY: reproducible
reproducible: ## build the command in two folders, the second time of nothing, and compare the bytes
	@dir=$$(mktemp -d) && trap 'chmod -R u+w '$$dir'; rm -rf '$$dir EXIT && \
	  for folder in one two/deeper; do \
	    mkdir -p $$dir/$$folder && git ls-files -z | tar --null -T - -cf - | tar -xf - -C $$dir/$$folder || exit 1; \
	    [ $$folder = one ] || export GOCACHE=$$dir/cache; \
	    $(MAKE) -s -C $$dir/$$folder build VERSION='$(VERSION)' COMMIT='$(COMMIT)' DATE='$(DATE)' || exit 1; \
	  done && \
	  (cd $$dir && sha256sum one/bin/headgate two/deeper/bin/headgate) && cmp $$dir/one/bin/headgate $$dir/two/deeper/bin/headgate && echo "the same bytes"

.PHONY: snapshot
snapshot: $(BIN)/goreleaser ## build the archives and packages of a release into dist; SNAPSHOT=--skip=sbom leaves the lists of modules out
	$(BIN)/goreleaser check
	$(BIN)/goreleaser release --snapshot --clean $(SNAPSHOT)

$(BIN)/goreleaser: Makefile
	GOBIN=$(BIN) $(GO) install github.com/goreleaser/goreleaser/v2@$(GORELEASER)
