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
# The packages in which nothing runs at once, so that the race detector has
# nothing to find in them. archtest holds the list to that.
ALONE := internal/device/seat internal/lab/archtest internal/lab/fabric internal/lab/program internal/lab/sim \
	internal/protocol/calls/collective internal/protocol/calls/epochs \
	internal/protocol/engine internal/protocol/engine/line internal/protocol/engine/membership \
	internal/protocol/engine/message internal/protocol/engine/onesided \
	internal/protocol/link internal/protocol/link/express internal/protocol/link/reliable internal/protocol/wire \
	window
space := $(subst ,, )
RANKS ?= 4
# With root the ranks talk over XDP in namespaces of their own.
TRANSPORT ?= $(if $(filter 0,$(shell id -u)),auto,udp)
# What to count; without it, the source of the Go toolchain.
TREE ?=

.DEFAULT_GOAL := help
.PHONY: help build generate check-generated check test race soak fuzz demo bench bench-peers lint clean go clang

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1|\2/p' $(MAKEFILE_LIST) | while IFS='|' read -r name text; do \
		printf '  make %-16s %s\n' "$$name" "$$text"; done

build: go ## compile the command into bin/xdprma
	@echo "compiling; the first time this fetches modules and takes a minute" >&2
	@$(GO) build -v -o bin/ ./cmd/...

test: go ## run all tests; without root, those that need it are skipped
	@echo "compiling; the first time this fetches modules and takes some minutes" >&2
	@$(GO) build -v ./...
	@echo "testing; each package has a line when it is done, the slowest first" >&2
	$(TEST) $(SLOWEST) ./...

race: go ## run the tests under the race detector, as CI does (needs a C compiler)
	@all=$$($(GO) list ./...) && some=$$(echo "$$all" | grep -vxE '$(subst $(space),|,$(addprefix .*/xdprma/,$(ALONE)))') && \
	GORACE=atexit_sleep_ms=0 $(TEST) -race -short $(SLOWEST) $$some

check: lint check-generated ## before a commit: lint, generated code (needs clang 14), short tests of what a change reaches
	$(TEST) -short $(SLOWEST) ./...

soak: go ## simulate SEEDS (50000) random networks, several minutes
	$(GO) test ./internal/lab/sim -run 'TestSim|TestPrograms' -timeout 0 -sim.seeds=$(SEEDS)

fuzz: go ## try each fuzz target with TIMES (1) times the inputs that stand beside it
	@failed=0; for file in $$(grep -rl --include=*_test.go '^//fuzz:inputs' .); do \
		for target in $$(sed -n '/^\/\/fuzz:inputs /{N;s/.* \([0-9]*\)\nfunc \(Fuzz[A-Za-z0-9_]*\).*/\2:\1/p}' $$file); do \
			$(GO) test $(TESTFLAGS) -run '^$$' -fuzz "^$${target%:*}\$$" -fuzztime $$(($${target#*:} * $(TIMES)))x -fuzzminimizetime 100x $${file%/*} || failed=1; \
		done; done; exit $$failed

demo: build ## count the words of TREE (Go's source) in a table spread over RANKS (4) ranks
	@$(GO) build -v -o bin/wordcount ./examples/wordcount
	bin/xdprma run -n $(RANKS) --transport $(TRANSPORT) --timeout 120s -- bin/wordcount $(TREE)

bench: build ## measure everything beside the bare AF_XDP floor; plots and results.json in bench/out (under 5 minutes)
	@mkdir -p bench/out && rm -f bench/out/mtu-* bench/out/results.json
	bin/xdprma perf all --transport $(TRANSPORT) --plot bench/out/mtu-1500.svg --save bench/out/mtu-1500.json
	@if [ $(TRANSPORT) != udp ]; then for mtu in 3498 9000; do set -x; \
		bin/xdprma perf floor put-latency get-latency put-bandwidth get-bandwidth --bytes 8,64K,1M --mtu $$mtu \
			--transport $(TRANSPORT) --plot bench/out/mtu-$$mtu.svg --save bench/out/mtu-$$mtu.json || exit; done; fi
	@cat bench/out/mtu-*.json >bench/out/results.json && echo "see bench/out: results.json, mtu-*.svg"

bench-peers: go ## measure MPICH and Open MPI beside this library (as root; MTU, ROUNDS, OFFLOADS=off; INSTALL=1 installs them)
	@mkdir -p bench/out
	OUT=$(CURDIR)/bench/out/peers-$(or $(MTU),1500)$(if $(OFFLOADS),-offloads-$(OFFLOADS)).json bash bench/peers/run.sh

lint: go ## gofmt, go mod tidy, go vet and staticcheck
	@unformatted=$$(gofmt -l .); test -z "$$unformatted" || { echo "run gofmt -w on: $$unformatted"; exit 1; }
	$(GO) mod tidy -diff || { echo "run go mod tidy"; exit 1; }
	$(GO) vet ./...
	$(GO) tool staticcheck ./...

generate: go clang ## compile the BPF programs; the objects are committed
	$(GO) generate ./bpf/...

check-generated: go clang ## fail if the committed BPF objects are not what the sources give
	@copy=$$(mktemp -d) && trap 'rm -rf "$$copy"' EXIT && \
	cp -R bpf go.mod go.sum "$$copy" && (cd "$$copy" && $(GO) generate ./bpf/...) && \
	diff -r bpf "$$copy/bpf" || { echo "run make generate and commit the result"; exit 1; }

clean: ## remove what the other targets made
	rm -rf bin

go:
	@command -v $(GO) >/dev/null || { echo "Go 1.26 is needed: https://go.dev/dl/"; exit 1; }

clang:
	@command -v clang-14 >/dev/null && command -v llvm-strip-14 >/dev/null && test -e /usr/include/bpf/bpf_helpers.h || { \
		echo "the BPF programs need clang 14 and libbpf's headers: apt-get install clang-14 llvm-14 libbpf-dev"; exit 1; }
