#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
# Fuzzes the algorithms with any sequence of events (target `events`), the user-space transport with any packets (`packets`), and its client of
# relays with anything that these may say (`relays`), and TCP carriers (`carriers`), on the stable toolchain, each for this many seconds: `FUZZ_SECONDS=60 scripts/fuzz.sh [TARGET...]`.
# With clang the C is instrumented too, so that libFuzzer sees which branches of an algorithm it has reached.
set -eu

cd "$(dirname "$0")/../fuzz"
target=$(rustc -vV | sed -n 's/^host: //p')
coverage=inline-8bit-counters,pc-table

for clang in clang clang-19 clang-18 clang-16 clang-14; do
	if command -v "$clang" >/dev/null; then
		export CC="$clang" CFLAGS="-fsanitize-coverage=$coverage"
		break
	fi
done
[ -n "${CC:-}" ] || echo "fuzz: no clang: only the Rust part guides the fuzzer" >&2

# What cargo-fuzz passes, as far as stable Rust knows it.
export RUSTFLAGS="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table --cfg fuzzing"
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}/fuzz"
cargo build --release --target "$target"

# Each run starts with what earlier ones found; a crash is written to artifacts/ and fails the script.
mkdir -p artifacts
[ $# -gt 0 ] || set -- carriers events packets relays
for name; do
	mkdir -p "corpus/$name"
	"$CARGO_TARGET_DIR/$target/release/$name" "corpus/$name" -artifact_prefix="artifacts/$name-" -max_len=16384 \
		-max_total_time="${FUZZ_SECONDS:-60}" -print_final_stats=1
done
