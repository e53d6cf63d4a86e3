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

all_stages=(rust-format c-format shell clippy portable kernel root guests release demo matrix)

# One feature set for every stage with kernel code, so that dependencies are compiled once.
kernel_crates=(-p vmcc-host -p vmcc-lab -p vmcc)
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
	PATH="$fakes:$PATH" unprivileged cargo test --locked
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

stage_kernel() {
	cargo test --locked "${kernel_crates[@]}" "${kernel_features[@]}" -- --skip root_ --skip guest_
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
	cargo test --locked --no-fail-fast "${kernel_crates[@]}" "${kernel_features[@]}" -- --test-threads=1 root_
}

stage_guests() {
	# One at a time: each guest wants every core.
	cargo test --locked --no-fail-fast "${kernel_crates[@]}" "${kernel_features[@]}" -- --test-threads=1 guest_
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
for stage in "${stages[@]}"; do
	printf '\n=== %s ===\n' "$stage"
	begin=$SECONDS
	"stage_$stage" 2>&1 | tee "$logs/$stage"
	status=${PIPESTATUS[0]}
	if [ "$status" = 77 ] && [ -z "${CI:-}" ]; then
		result='left out'
		left_out=$((left_out + 1))
	elif [ "$status" != 0 ]; then
		result=FAILED
		failures+=("$stage")
	else
		result=passed
	fi
	line=$(printf '%-12s %-8s %4d s' "$stage" "$result" $((SECONDS - begin)))
	printf -- '--- %s\n' "$line"
	summary+=("$line")
done

printf '\n================ summary ================\n'
printf '%s\n' "${summary[@]}"
printf '=========================================\n'
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
