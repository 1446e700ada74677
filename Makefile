# make demo and make test are all a newcomer needs: Go, make and a C++ compiler, nothing else.

GO       ?= go
FUZZTIME ?= 20000x
TESTFLAGS ?=
PACKAGES ?= ./...
BIN      := bin/etc
PLATFORMS := darwin/arm64 linux/arm64 linux/amd64 windows/amd64

# The chat checkpoint is a small trained Qwen3.5-MoE; special tokens of a --raw prompt are parsed.
DEMO_CHECKPOINT := testdata/checkpoints/qwen35moe-chat
DEMO_QUESTION   := What is the capital of France?
DEMO_PROMPT     := <|im_start|>user\n$(DEMO_QUESTION)<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n

.PHONY: build demo test test-all test-clients test-page lint cross fuzz bench bench-peers bench-quality metal release clean

build:
	CGO_ENABLED=0 $(GO) build -trimpath -o $(BIN) ./cmd/etc

# Compile the checkpoint to 4 bits and ask the result a question.
demo: build
	$(BIN) export $(DEMO_CHECKPOINT) --sample --qlinear 4w --group-size 64 --max-seq-len 256 -o bin/demo.pte
	@echo '> $(DEMO_QUESTION)'
	@printf '$(DEMO_PROMPT)' | $(BIN) run bin/demo.pte --raw --temperature 0

# All tests but those that say -short: whole models on the emulator of GPUs, the stand-ins for its drivers, what
# compiles other programs. It takes 3 minutes on two cores; the time limit is of a package, and for slow machines.
# Tests need no debugging information, which takes half of the time of linking them (-ldflags=-w).
test:
	$(GO) test -short -ldflags=-w -timeout 30m $(TESTFLAGS) ./...

# Every test. The schema test compiles flatc, once, from the flatbuffers module.
test-all:
	$(GO) test -ldflags=-w -timeout 2h $(TESTFLAGS) $(PACKAGES)

# Clients that others wrote, from npm, against etc serve, and suites for servers: ExecuTorch's, and what applies of llama.cpp's.
test-clients: build tools/clients/node_modules/.package-lock.json
	GO=$(GO) sh tools/clients/run.sh $(BIN)

# The clients, of the versions in the lock file.
tools/clients/node_modules/.package-lock.json: tools/clients/package-lock.json
	cd tools/clients && npm ci --no-audit --no-fund --ignore-scripts --loglevel=error --fetch-retries=1 --fetch-timeout=20000
	@touch $@

# The page of etc serve, in Chromium; skipped where there is none.
test-page: build
	cd tools/page && $(GO) vet ./... && ETC=$(CURDIR)/$(BIN) $(GO) test -timeout 10m $(TESTFLAGS) ./...

# gofmt, go vet on every platform, staticcheck, and functions of at most 25 branches (versions are pinned in tools/lint.mod).
# Vet compiles all packages for a platform; with -trimpath, as make build and make cross do, so that it is done once.
lint:
	@files=$$(gofmt -l .) && test -z "$$files" || { echo "gofmt -l: $$files"; exit 1; }
	@for p in $(PLATFORMS); do \
		echo "go vet $$p" && GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) vet -trimpath ./... || exit 1; \
	done
	$(GO) tool -modfile=tools/lint.mod staticcheck ./...
	$(GO) tool -modfile=tools/lint.mod gocyclo -over 25 -ignore "_test[.]go|testdata|_generated[.]go" .

# A static binary for every platform, under bin/.
cross:
	@for p in $(PLATFORMS); do \
		echo "go build $$p" && GOOS=$${p%/*} GOARCH=$${p#*/} CGO_ENABLED=0 $(GO) build -trimpath -o bin/$$p/ ./cmd/etc || exit 1; \
	done

# Every fuzz target for FUZZTIME, one after the other: make fuzz FUZZTIME=10m. Counts (20000x) end by themselves;
# with a duration a busy machine may report its end as a failure ("context deadline exceeded").
fuzz:
	@grep -rl --include='*_test.go' '^func Fuzz' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\)(.*/\1/p' "$$file"); do \
			echo "$$target in $$(dirname "$$file")"; \
			$(GO) test -run='^$$' -fuzz="^$$target\$$" -fuzztime=$(FUZZTIME) -fuzzminimizetime=100x "$$(dirname "$$file")" || exit 1; \
		done; \
	done

# The figures of BENCHMARKS.md come from here and from the commands quoted there.
bench:
	$(GO) test -run='^$$' -bench=. -benchmem ./...

# The tables against llama.cpp, which is built from its sources outside of the repository (needs npm, cmake, a C++ compiler and
# 20 GB). PEERS chooses parts: make bench-peers PEERS='-models qwen4 -threads 4 -depths 0,4096'; see internal/benchpeers.
bench-peers: build
	@$(GO) run ./internal/benchpeers $(PEERS)

# Divergence, perplexity, time and memory by method, bits and group, of checkpoints that QUALITY names:
# make bench-quality QUALITY='-text eval.txt -picture docs/quality.svg small=path/to/checkpoint'; see internal/benchquality.
bench-quality: build
	@$(GO) run ./internal/benchquality $(QUALITY)

# The report of a run on a Mac (docs/metal.md), in metal-report.txt.
metal: build
	sh docs/metal-report.sh metal 2>&1 | tee metal-report.txt

# What a release consists of, in dist/: archives for every platform, checksums, bills of materials, a Homebrew formula,
# and signatures where there is a key (RELEASE='-key minisign.key'). HEAD must have the tag of internal/version;
# RELEASE=-snapshot does without. The bills need cyclonedx-gomod, which tools/release.mod pins and go fetches.
release:
	$(GO) run ./tools/release $(RELEASE)

clean:
	rm -rf bin dist
