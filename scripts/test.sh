#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs every test that this machine can run, in stages; a failed stage does not keep the next ones
# from running. `make test` calls it after set-up.
#
#   scripts/test.sh [STAGE...]      default: all stages, in the order of `all_stages`
#
# What a machine cannot run is named in the summary, with the reason. With CI set nothing may be
# left out: what cannot run has failed. Exit codes: 0 all passed, 1 a stage failed, 2 wrong use.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export PATH="$PATH:$HOME/.cargo/bin"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
target=${CARGO_TARGET_DIR:-target}
vmcc=$target/release/vmcc

all_stages=(rust-format c-format shell portable kernel release clippy root guests demo matrix)
# These only compute. Before a root stage of the same call they wait for it and run beside it at idle
# priority: root tests mostly wait for packets.
beside_root=(release clippy)

# One feature set for every stage with kernel code, and always the whole workspace: what is selected
# decides about the features of dependencies, which would be compiled a second time.
kernel_features=(--features "vmcc/kernel,vmcc/root-tests,vmcc-lab/root-tests")

# --- stages -----------------------------------------------------------------------------------
# A stage succeeds, fails, or returns 77 after printing why this machine cannot run it.

cannot() {
	echo "cannot run here: $*"
	return 77
}

stage_rust-format() { cargo fmt --all --check; }

stage_c-format() {
	local formatter
	formatter=$(scripts/clang-format.sh) || return
	git ls-files '*.c' '*.h' | xargs "$formatter" --dry-run --Werror
}

stage_shell() { git ls-files '*.sh' .ci/run | xargs shellcheck; }

stage_clippy() {
	cargo clippy --locked --workspace --all-targets "${kernel_features[@]}" -- -D warnings
}

# Everything but the kernel engine must build and pass with a C compiler alone: here clang and
# pkg-config fail when called, no dependency binds libbpf, and every privilege is dropped.
stage_portable() {
	local fakes name
	if cargo tree --locked -e normal,build,dev --prefix none | grep -E '^(libbpf|libelf)'; then
		echo "a default member depends on libbpf or libelf; only vmcc-host and vmcc-lab may"
		return 1
	fi
	fakes=$(mktemp -d) || return
	for name in clang clang-format bpftool pkg-config llvm-strip \
		$(cd /usr/bin && ls -d clang-[0-9]* 2>/dev/null); do
		# The fake names itself when it runs.
		# shellcheck disable=SC2016
		printf '#!/bin/sh\necho "$0 is not to be used here" >&2\nexit 1\n' >"$fakes/$name"
		chmod +x "$fakes/$name"
	done
	PATH="$fakes:$PATH" unprivileged cargo test --locked --no-fail-fast
	local status=$?
	rm -rf "$fakes"
	return $status
}

unprivileged() {
	if [ "$(id -u)" = 0 ]; then
		# setfcap: without it root may not map itself into a user namespace, which one test needs.
		setpriv --bounding-set=-all,+setfcap --inh-caps=-all --no-new-privs "$@"
	else
		"$@"
	fi
}

stage_kernel() { kernel_tests --skip root_ --skip guest_; }

# The tests of crates with kernel code whose names fit the arguments, which are libtest's.
kernel_tests() {
	local targets=(--lib --bin vmcc) file
	# What some tests start: `cargo test` leaves out examples where targets are named, or builds them as tests.
	cargo build --locked --workspace "${kernel_features[@]}" --example two_paths || return
	for file in crates/{host,lab,cli}/tests/*.rs; do
		targets+=(--test "$(basename "$file" .rs)")
	done
	cargo test --locked --no-fail-fast --workspace "${kernel_features[@]}" "${targets[@]}" -- "$@"
}

# kernel_tests, one at a time; what failed is tried once more by itself, because machines are shared and these tests
# are about what a machine carries. The summary names it.
kernel_tests_twice() {
	local log=$logs/first-try failed again=$logs/again
	kernel_tests --test-threads=1 "$@" 2>&1 | tee "$log"
	[ "${PIPESTATUS[0]}" != 0 ] || return 0
	# The list that libtest ends with: names by themselves, indented.
	mapfile -t failed < <(awk '/^failures:$/ { list = 1 } /^test result/ { list = 0 }
		list && /^    [a-z0-9_:]+$/ { print $1 }' "$log" | sort -u)
	# It did not build, a test took its process down, or it is no accident.
	if [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt 4 ] || grep -q '(signal: ' "$log"; then
		return 1
	fi
	echo "once more, each by itself: ${failed[*]}"
	kernel_tests --test-threads=1 --exact "${failed[@]}" 2>&1 | tee "$again"
	[ "${PIPESTATUS[0]}" = 0 ] || return 1
	[ "$(awk '/^test result: ok/ { n += $4 } END { print n + 0 }' "$again")" = ${#failed[@]} ] || return 1
	printf '%s\n' "${failed[@]}" >>"$logs/second-try"
}

why_not_on_this_kernel() {
	if [ "$(id -u)" != 0 ]; then
		echo "not root; try: sudo make test"
	elif [ ! -e /sys/kernel/btf/vmlinux ]; then
		echo "this kernel has no BTF (CONFIG_DEBUG_INFO_BTF)"
	elif [ ! -e /proc/sys/net/mptcp/enabled ]; then
		echo "this kernel has no MPTCP (CONFIG_MPTCP)"
	fi
}

stage_root() {
	local reason
	reason=$(why_not_on_this_kernel)
	[ -z "$reason" ] || { cannot "$reason" || return; }
	# One at a time: they share the kernel's sysctls and its list of algorithms.
	kernel_tests_twice root_
}

stage_guests() {
	# One at a time: each guest wants every core.
	kernel_tests_twice guest_
}

stage_release() { cargo build --locked --release -p vmcc --features kernel; }

# Exit code 1 is a claim that failed. They are about what this machine carries, and it may have been busy for a moment.
stage_demo() {
	local status
	"$vmcc" demo
	status=$?
	[ $status = 1 ] || return $status
	echo "once more: a claim failed"
	"$vmcc" demo
}

stage_matrix() {
	local where=(6.1 7)
	[ -n "$(why_not_on_this_kernel)" ] || where=(host "${where[@]}")
	scripts/kernel-matrix.sh "${where[@]}"
}

# --- running them -----------------------------------------------------------------------------

stages=("${@:-${all_stages[@]}}")
for stage in "${stages[@]}"; do
	if ! declare -F "stage_$stage" >/dev/null; then
		echo "unknown stage \"$stage\"; there are: ${all_stages[*]}" >&2
		exit 2
	fi
done

summary=()
failures=()
left_out=0
started=$SECONDS
logs=$(mktemp -d) || exit
trap 'rm -rf "$logs"' EXIT

is_one_of() { # is_one_of WORD WORDS...
	local word=$1 one
	shift
	for one in "$@"; do [ "$one" != "$word" ] || return 0; done
	return 1
}

# Runs one stage; its status and duration become files beside its log.
run_stage() {
	local begin=$SECONDS
	"stage_$1" 2>&1 | tee "$logs/$1"
	echo "${PIPESTATUS[0]} $((SECONDS - begin))" >"$logs/$1.result"
}

judge() { # judge STAGE
	local status seconds result line
	read -r status seconds <"$logs/$1.result"
	if [ "$status" = 77 ] && [ -z "${CI:-}" ]; then
		result='left out'
		left_out=$((left_out + 1))
	elif [ "$status" != 0 ]; then
		result=FAILED
		failures+=("$1")
	else
		result=passed
	fi
	line=$(printf '%-12s %-8s %4d s' "$1" "$result" "$seconds")
	printf -- '--- %s\n' "$line"
	summary+=("$line")
}

waiting=()
root_to_come=$(is_one_of root "${stages[@]}" && echo yes)
for stage in "${stages[@]}"; do
	if is_one_of "$stage" "${beside_root[@]}" && [ -n "$root_to_come" ]; then
		waiting+=("$stage")
		continue
	fi
	if [ "$stage" = root ] && [ ${#waiting[@]} -gt 0 ]; then
		(
			chrt --idle --pid 0 "$BASHPID"
			for one in "${waiting[@]}"; do run_stage "$one" >/dev/null; done
		) &
	fi
	printf '\n=== %s ===\n' "$stage"
	run_stage "$stage"
	judge "$stage"
	[ "$stage" = root ] || continue
	root_to_come=
	wait
	for one in "${waiting[@]}"; do
		printf '\n=== %s, beside root ===\n' "$one"
		tail -n 40 "$logs/$one"
		judge "$one"
	done
	waiting=()
done

printf '\n================ summary ================\n'
printf '%s\n' "${summary[@]}"
printf '=========================================\n'
[ ! -e "$logs/second-try" ] || printf 'passed at the second try: %s\n' "$(tr '\n' ' ' <"$logs/second-try")"
took=$(((SECONDS - started) / 60))min$(((SECONDS - started) % 60))s
if [ ${#failures[@]} -gt 0 ]; then
	# Of a log, often only the end is read or kept.
	for stage in "${failures[@]}"; do
		printf '\n--- %s, of its output:\n' "$stage"
		grep -E 'panicked at|FAIL|^error|^left out' -A 1 "$logs/$stage" | tail -n 8 | cut -c -140
	done
	echo "FAILED: ${#failures[@]} of ${#stages[@]} stages, after $took"
	exit 1
fi
echo "PASSED: $((${#stages[@]} - left_out)) of ${#stages[@]} stages ($left_out left out), after $took"
