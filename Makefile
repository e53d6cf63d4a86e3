# vmcc: `make demo` sets everything up and runs the main job, `make test` sets everything up and runs
# every test that this machine can run. `make help` lists the rest.

# Where rustup puts cargo, for shells that do not know it yet.
export PATH := $(PATH):$(HOME)/.cargo/bin
TARGET := $(or $(CARGO_TARGET_DIR),target)
VMCC := $(TARGET)/release/vmcc
DEMO := $(TARGET)/debug/vmcc
# SETUP=: leaves the set-up out, for systems whose packages you install yourself.
SETUP ?= scripts/setup.sh

.PHONY: help
help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: demo
demo: ## all set-up, then four algorithms over two paths on a real kernel
	@$(SETUP) demo
	@cat docs/demo.txt
	@scripts/test.sh --build-program
	@$(DEMO) demo

.PHONY: test
test: ## all set-up, then every test that this machine can run
	@$(SETUP) build run guest test
	@scripts/test.sh

.PHONY: check
check: ## format, lints and portable tests of what is not committed; BASE=main: of what main has not
	@scripts/check.sh $(BASE)

.PHONY: setup
setup: ## system packages and Rust toolchain for build and demo
	@$(SETUP) demo

.PHONY: setup-guest
setup-guest: ## QEMU and the kernels that guests boot
	@$(SETUP) guest

.PHONY: setup-test
setup-test: ## what only the tests need
	@$(SETUP) test

.PHONY: build
build: ## the vmcc program, after set-up
	@$(SETUP) build
	@$(MAKE) --no-print-directory release

.PHONY: release
release: # no set-up
	cargo build --release --locked -p vmcc --features kernel

.PHONY: deb
deb: ## Debian packages in target/: program, service, manual pages, completions, alerts; debug symbols
	@$(SETUP) build deb
	cargo build --profile dist --locked -p vmcc --features kernel
	@scripts/deb.sh $(TARGET)/dist/vmcc $(TARGET)

.PHONY: docs
docs: ## the documents as a site, served at 127.0.0.1:8000 and opened in a browser
	@$(SETUP) docs
	@scripts/site.sh --open

.PHONY: kernels
kernels: ## every algorithm on the host's kernel and on Debian's 6.1, 6.12, 6.18 and newest
	@$(SETUP) build run guest
	@$(MAKE) --no-print-directory release
	@scripts/kernel-matrix.sh host $(or $(KERNELS),6.1 6.12 6.18 newest)

.PHONY: bench
bench: ## simulator speed, and cost of each hook in the kernel (root)
	@$(SETUP) build run
	@$(MAKE) --no-print-directory release
	@$(VMCC) bench sim
	@$(VMCC) bench kernel

.PHONY: fuzz
fuzz: ## any events against every algorithm, any packets against the transport, its relays and TCP carriers; FUZZ_SECONDS=60
	@scripts/fuzz.sh

.PHONY: macos
macos: ## compiles for macOS what runs there: simulator, transport and its programs
	@$(SETUP) build
	@scripts/macos.sh

.PHONY: fmt
fmt: ## formats Rust and C
	cargo fmt --all
	git ls-files '*.c' '*.h' | xargs $$(scripts/clang-format.sh) -i

.PHONY: deny
deny: ## licences, advisories and sources of the dependencies (needs cargo-deny)
	cargo deny check

.PHONY: clean
clean: ## removes build output and what killed runs left behind
	@[ ! -x $(VMCC) ] || $(VMCC) clean
	cargo clean
