# Targets for people; .ci/run is what decides whether a change is sound.

GO ?= go
SEEDS ?= 50000
TIMES ?= 1
# Tests wait much, so more packages are tested at once than there are processors, the
# slowest first, and more of the tests that say that they wait. Lint vets, and nobody
# debugs these binaries. The limit is for what hangs.
export XDPRMA_TEST_UID := $(shell id -u)
TEST = $(GO) test -p 4 -parallel 8 -vet=off -ldflags=-w -timeout 60m $(TESTFLAGS)
SLOWEST = ./vmtests ./rma ./comm ./cmd/xdprma
# A newcomer sees at least every ten seconds that something happens: STILL says so of what is silent, and SHOW of
# tests. Without bash, commands are silent for as long as they are.
STILL := $(if $(shell command -v bash 2>/dev/null),bash $(CURDIR)/internal/lab/progress/still.sh)
SHOW = $(if $(filter -json -v -bench%,$(TESTFLAGS)),,$$($(STILL) $(GO) tool -n progress))
# compile builds and names what it compiles: packages, flags.
compile = OF=$$($(STILL) $(GO) list -e -deps $(1) | wc -l) $(STILL) $(GO) build -v $(2) $(1)
# The library, the commands (cmd), the recipes (deploy) and the tools (tools) are modules of their
# own, so that who imports the library has nothing to do with what the others need. "work" is the
# packages of all but tools, by go.work.
LIBRARY = github.com/xdprma/xdprma
TOOL = GOWORK=off $(GO) -C tools tool -n
# With DIFF=-diff, tidy changes nothing, and fails if there is something to change.
DIFF ?=
VULNDB ?= https://vuln.go.dev
# What make build makes names its commit, whatever GOFLAGS says, if git trusts the folder. Go does not look
# into the work trees of git worktree.
STAMP = -buildvcs=$(if $(shell git rev-parse HEAD 2>/dev/null),auto,false)
# Two versions of Go work: that of go.mod, and the next.
OTHER_GO ?= $(if $(filter go1.26%,$(shell $(GO) env GOVERSION)),go1.27.4,go1.26.8)
# The packages in which nothing runs at once, so that the race detector has
# nothing to find in them. archtest holds the list to that.
ALONE := datatype internal/device/seat internal/lab/archtest internal/lab/fabric internal/lab/program internal/lab/sim internal/lab/stranger \
	internal/protocol/calls/collective internal/protocol/calls/epochs \
	internal/protocol/engine internal/protocol/engine/line internal/protocol/engine/membership \
	internal/protocol/engine/message internal/protocol/engine/onesided \
	internal/protocol/link internal/protocol/link/express internal/protocol/link/reliable internal/protocol/secure \
	internal/protocol/siphash internal/protocol/wire window
space := $(subst ,, )
# What awk prints of the packages, for each group of the race tests; without one, for all.
WITHOUT = $$0 !~ "/xdprma/($(subst $(space),|,$(1)))$$"
group_vmtests = $$0 ~ "/xdprma/vmtests$$"
group_rma = $$0 ~ "/xdprma/rma$$"
group_others = $(call WITHOUT,$(strip $(ALONE) vmtests rma))
group_ = $(call WITHOUT,$(strip $(ALONE)))
group = $(or $(group_$(1)),$(error the group $(1) is none of vmtests, rma, others))
RANKS ?= 4
# With root the ranks talk over XDP in namespaces of their own.
TRANSPORT ?= $(if $(filter 0,$(shell id -u)),auto,udp)
# What to count; without it, the source of the Go toolchain.
TREE ?=

.DEFAULT_GOAL := help
.PHONY: help all-parts build generate check-generated check-api check test race soak many vm fuzz benchmarks demo bench bench-peers lint vet staticcheck tidy vulnerabilities other-go clean go clang

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-16s %s\n' "$$name" "$$text"; done

build: go ## compile the command into bin/xdprma
	@echo "compiling; the first time this fetches modules and takes two to five minutes on two processors" >&2
	@$(call compile,./cmd/xdprma,$(STAMP) -o bin/)

test: go ## run all tests; without root, those that need it are skipped (LEAVE=GROUP: none of that group of race's)
	@echo "compiling; the first time this fetches modules and takes two to six minutes on two processors" >&2
	@$(call compile,work)
	@echo "testing, which takes five to twenty minutes on two processors; the slowest packages begin" >&2
	@some=$$($(GO) list $(SLOWEST) work | awk '$(if $(LEAVE),!($(call group,$(LEAVE))),1)') && \
	$(SHOW) $(TEST) $$some

race: go ## run the tests under the race detector (needs a C compiler; GROUP=vmtests, rma or others: a part of them)
	@some=$$($(GO) list $(SLOWEST) work | awk '$(call group,$(GROUP))') && \
	GORACE=atexit_sleep_ms=0 $(SHOW) $(TEST) -race -short $$some

all-parts: lint vulnerabilities benchmarks test race other-go many fuzz ## all that runs of CI take turns at

check: lint check-generated ## before a commit: lint, generated code (needs clang 14), short tests of what a change reaches
	@$(SHOW) $(TEST) -short $$($(GO) list $(SLOWEST) work)

soak: go ## simulate SEEDS (50000) random networks, several minutes
	@$(SHOW) $(GO) test ./internal/lab/sim -run 'TestSim|TestPrograms' -timeout 0 -sim.seeds=$(SEEDS)

many: go ## 256 ranks of one process, and 200 processes in namespaces (as root), put to all others (2 minutes)
	@XDPRMA_TEST_RANKS=256 $(SHOW) $(TEST) -run '^TestManyRanksPutToAll$$' ./rma
	@XDPRMA_TEST_RANKS=200 $(SHOW) $(TEST) -run '^TestRunManyRanks$$' ./cmd/xdprma

vm: go ## tests and examples on other kernels and NICs, in virtual machines; writes docs/kernels.md (hours without KVM; MACHINES="-only PATTERN", MIRROR)
	$(GO) run ./vmtests/machines -mirror "$(MIRROR)" $(MACHINES)

fuzz: go ## try each fuzz target with TIMES (1) times the inputs that stand beside it
	@failed=0; for file in $$(grep -rl --include=*_test.go '^//fuzz:inputs' .); do \
		for target in $$(sed -n '/^\/\/fuzz:inputs /{N;s/.* \([0-9]*\)\nfunc \(Fuzz[A-Za-z0-9_]*\).*/\2:\1/p}' $$file); do \
			$(GO) test $(TESTFLAGS) -run '^$$' -fuzz "^$${target%:*}\$$" -fuzztime $$(($${target#*:} * $(TIMES)))x -fuzzminimizetime 100x $${file%/*} || failed=1; \
		done; done; exit $$failed

benchmarks: go ## run each benchmark once, to see that it works (as root, or those that need it are skipped)
	@some=$$(grep -rl --include=*_test.go '^func Benchmark' . | xargs -n 1 dirname | sort -u) && \
	timeout 10m $(TEST) -run '^$$' -bench . -benchtime 1x $$some

demo: build ## count the words of TREE (Go's source) in a table spread over RANKS (4) ranks
	@$(call compile,./examples/wordcount,-o bin/wordcount)
	bin/xdprma run -n $(RANKS) --transport $(TRANSPORT) --timeout 120s -- bin/wordcount $(TREE)

bench: build ## measure everything beside the bare AF_XDP floor; plots and results.json in bench/out (under 5 minutes)
	@mkdir -p bench/out && rm -f bench/out/mtu-* bench/out/results.json
	bin/xdprma perf all --transport $(TRANSPORT) --plot bench/out/mtu-1500.svg --save bench/out/mtu-1500.json
	@if [ $(TRANSPORT) != udp ]; then for mtu in 3498 9000; do set -x; \
		bin/xdprma perf floor put-latency get-latency put-bandwidth get-bandwidth --bytes 8,64K,1M --mtu $$mtu \
			--transport $(TRANSPORT) --plot bench/out/mtu-$$mtu.svg --save bench/out/mtu-$$mtu.json || exit; done; fi
	@cat bench/out/mtu-*.json >bench/out/results.json && echo "see bench/out: results.json, mtu-*.svg"

bench-peers: go ## measure MPICH and Open MPI beside this library (as root; MTU, ROUNDS, OFFLOADS=off, BUSY=2; INSTALL=1 installs them)
	@mkdir -p bench/out
	OUT=$(CURDIR)/bench/out/peers-$(or $(MTU),1500)$(if $(OFFLOADS),-offloads-$(OFFLOADS))$(if $(BUSY),-busy-$(BUSY)).json bash cmd/peers/run.sh

lint: vet staticcheck ## gofmt, go mod tidy, go vet and staticcheck, for all modules

vet: go
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "run gofmt -w on: $$unformatted"; exit 1; }
	@$(STILL) $(MAKE) -s tidy DIFF=-diff || { echo "run make tidy"; exit 1; }
	@echo "$(GO) vet work" && $(STILL) $(GO) vet work

staticcheck: go
	@tool=$$($(STILL) env $(TOOL) staticcheck) && echo "$${tool##*/} work" && $(STILL) $$tool work

# The go.mod of cmd must not say that the library is here: go install refuses that. Nor does deploy's.
tidy: go ## go mod tidy, for all modules
	@export GOWORK=off && $(GO) mod tidy $(DIFF) && $(GO) -C tools mod tidy $(DIFF) && \
	copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && for module in cmd deploy; do \
		cp $$module/go.mod $$module/go.sum "$$copy" && \
		$(GO) mod edit -replace=$(LIBRARY)=$(CURDIR) "$$copy/go.mod" && \
		$(GO) -C $$module mod tidy $(DIFF) -modfile="$$copy/go.mod" && \
		$(GO) mod edit -dropreplace=$(LIBRARY) "$$copy/go.mod" && cp "$$copy/go.mod" "$$copy/go.sum" $$module/ || exit; done

vulnerabilities: go ## govulncheck: fail if code that is called has a known vulnerability (asks VULNDB, vuln.go.dev)
	@tool=$$($(TOOL) govulncheck) && said=$$($$tool -db $(VULNDB) work 2>&1); status=$$?; echo "$$said"; \
	case "$$status $$said" in "0 "*) ;; \
	*"govulncheck: fetching vulnerabilities:"*) echo "NOT CHECKED for vulnerabilities: $(VULNDB) cannot be reached" ;; \
	*) exit 1 ;; esac

other-go: export GOTOOLCHAIN = $(OTHER_GO)
other-go: go ## vet, and short tests of what needs no root, with OTHER_GO (go1.27.4), which Go fetches
	@said=$$($(GO) version 2>&1); status=$$?; echo "$$said" >&2; \
	case "$$status $$said" in "0 "*) $(GO) vet work && $(TEST) -short ./rmatest ./examples/... ./internal/elements $(addprefix ./,$(ALONE)) ;; \
	*"dial tcp"* | *"i/o timeout"* | *"403 Forbidden"* | *"502 Bad"*) echo "NOT CHECKED with $(OTHER_GO): it cannot be fetched" >&2 ;; \
	*) exit 1 ;; esac

generate: go clang ## compile the BPF programs; the objects are committed
	$(GO) generate ./bpf/...

check-api: go ## compare the exported API with that of the last version; what is incompatible has to be in CHANGELOG.md
	@tool=$$($(TOOL) apidiff) && $(GO) run ./internal/lab/apicheck "$$tool"

check-generated: go clang ## fail if the committed BPF objects are not what the sources give
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	cp -R bpf datatype internal mpierr window go.mod go.sum "$$copy" && (cd "$$copy" && $(STILL) $(GO) generate ./bpf/...) && \
	diff -r bpf "$$copy/bpf" || { echo "run make generate and commit the result"; exit 1; }

clean: ## remove what the other targets made
	rm -rf bin

go:
	@command -v $(GO) >/dev/null || { echo "Go 1.26 or 1.27 is needed: https://go.dev/dl/"; exit 1; }

clang:
	@command -v clang-14 >/dev/null && command -v llvm-strip-14 >/dev/null && test -e /usr/include/bpf/bpf_helpers.h || { \
		echo "the BPF programs need clang 14 and libbpf's headers: apt-get install clang-14 llvm-14 libbpf-dev"; exit 1; }
