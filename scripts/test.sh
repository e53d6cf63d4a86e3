#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs every test that this machine can run, in stages; a failed stage does not keep the next ones
# from running. `make test` calls it after set-up.
#
#   scripts/test.sh [STAGE...]        default: those of `all_stages`; `more_stages` by name
#   scripts/test.sh --build-program   only builds target/debug/vmcc, as the stages do
#
# What a machine cannot run is named in the summary, with the reason. With CI set nothing may be
# left out: what cannot run has failed. Exit codes: 0 all passed, 1 a stage failed, 2 wrong use.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export PATH="$PATH:$HOME/.cargo/bin"
export CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-auto}
target=${CARGO_TARGET_DIR:-target}
# What the tests are built with runs the demo and the matrix too: nothing is compiled twice.
vmcc=$target/debug/vmcc
# What has algorithms in the kernel's list does so in turns, with other runs of this script too.
mkdir -p "$target"
in_turn=(flock "$(realpath "$target")/algorithms.lock")

all_stages=(rust-format c-format shell prose site portable python clippy ports root guests agents libraries kernel timeless matrix demo)
# On demand, and in CI where they belong to a job.
more_stages=(release more-guests clusters)
# At the same time, each lane's one after the other: most wait for timers, and no verdict depends on what runs beside it
# (scripts/under-load.sh). What `root` loads, `agents` and `demo` load too.
lanes=("root agents demo" "ports libraries kernel matrix" "guests timeless more-guests" release)

# Every compilation here is Clippy's as well, which is the compiler with more lints: what it says is kept with what was
# compiled, and `clippy` asks for it.
# Without Clippy, as on a machine that is set up for the demo alone, the compiler itself does.
RUSTC_WORKSPACE_WRAPPER=$(command -v clippy-driver)
export RUSTC_WORKSPACE_WRAPPER

# One feature set for every stage with kernel code, and always the whole workspace: what is selected
# decides about the features of dependencies, which would be compiled a second time.
kernel_features=(--features "vmcc/kernel,vmcc/root-tests,vmcc-lab/root-tests")

[ "${1:-}" != --build-program ] || exec cargo build --locked --workspace "${kernel_features[@]}" --bin vmcc

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

stage_shell() { git ls-files '*.sh' .ci/run 'dist/debian/p*' | xargs shellcheck; }

stage_prose() { scripts/prose.py && scripts/links.py && scripts/regressions.py --check; }

stage_site() {
	[ -x target/site-python/bin/mkdocs ] || cannot "no site generator; run: scripts/setup.sh docs" || return
	scripts/site.sh
}

# Everything with both sets of features; what was compiled before, as the other stages do, is only asked for.
stage_clippy() {
	local status=0
	[ -n "$RUSTC_WORKSPACE_WRAPPER" ] || cannot "no Clippy; run: scripts/setup.sh test" || return
	heard_nothing cargo build --locked --all-targets || status=1
	heard_nothing "${examples[@]}" || status=1
	heard_nothing "${compile_tests[@]}" || status=1
	return $status
}

heard_nothing() { # heard_nothing COMMAND...: of cargo; fails if the compiler warned of anything
	"$@" --message-format json | python3 -c '
import json, sys
heard = {one["message"]["rendered"] for one in map(json.loads, sys.stdin) if one["reason"] == "compiler-message"}
print(*sorted(heard), sep="\n")
sys.exit(bool(heard))'
	# "0 0": neither of both failed.
	[ "${PIPESTATUS[*]}" = "0 0" ]
}

# Everything but the kernel engine must build and pass with a C compiler alone: here clang and
# pkg-config fail when called, no dependency binds libbpf, and every privilege is dropped.
stage_portable() {
	local fakes name
	if cargo tree --locked -e normal,build,dev --prefix none | grep -E '^(libbpf|libelf)'; then
		echo "a default member depends on libbpf or libelf; only vmcc-bpf and vmcc-lab may"
		return 1
	fi
	compiled_once && build_portable || return
	# The program itself is what the next build replaces.
	grep '/crates/cli[[:space:]]' "$logs/portable-tests" >"$logs/list-portable"
	portably run_together "$logs/list-portable" &&
		portably "${unprivileged[@]}" cargo test --locked --doc
}

# The tests that start no program of ours.
stage_libraries() {
	build_portable &&
		grep -v '/crates/cli[[:space:]]' "$logs/portable-tests" >"$logs/list-libraries" &&
		portably run_together "$logs/list-libraries"
}

# Builds the tests of the default members once and lists them in $logs/portable-tests.
build_portable() {
	local list=$logs/portable-tests
	[ -e "$list" ] || {
		rm -f "$logs/tests"
		portably tests_of "$list" "${unprivileged[@]}" cargo test --locked --no-run
	}
}

portably() { # portably COMMAND...: where no program of the kernel engine's is to be had; what it runs tests with, has no privilege
	local fakes name status threads=2 wrapper=("${unprivileged[@]}")
	fakes=$(mktemp -d) || return
	for name in clang clang-format bpftool pkg-config llvm-strip \
		$(cd /usr/bin && ls -d clang-[0-9]* 2>/dev/null); do
		# The fake names itself when it runs.
		# shellcheck disable=SC2016
		printf '#!/bin/sh\necho "$0 is not to be used here" >&2\nexit 1\n' >"$fakes/$name"
		chmod +x "$fakes/$name"
	done
	PATH=$fakes:$PATH "$@"
	status=$?
	rm -rf "$fakes"
	return $status
}

# What builds with and without the kernel engine share is compiled once only if both ask for the same features.
compiled_once() {
	local twice
	twice=$(comm -23 <(features_of) <(features_of --workspace "${kernel_features[@]}") | grep -vE '^vmcc(-port)? v')
	[ -z "$twice" ] || {
		printf '%s\n' "$twice"
		echo "would be compiled twice: without the kernel engine it has fewer features; see the end of crates/cli/Cargo.toml"
		return 1
	}
}

features_of() { # features_of SELECTION...: each package that the tests are built of, with its features
	cargo tree --locked -e normal,build,dev --prefix none -f '{p} [{f}]' "$@" | sed 's/ (\*)$//' | sort -u
}

# setfcap: without it root may not map itself into a user namespace, which one test needs.
unprivileged=()
[ "$(id -u)" != 0 ] || unprivileged=(setpriv "--bounding-set=-all,+setfcap" --inh-caps=-all --no-new-privs)

# What `portable` and `libraries` do not run: crates that are no default members, and what is another with kernel code.
stage_kernel() {
	build_tests && portable_folders >"$logs/portable-folders" &&
		awk -F '\t' 'NR == FNR { portable[$1]; next } !($1 in portable)' "$logs/portable-folders" "$logs/tests" |
		grep -vE '[[:space:]](it::(parquet|report|interrupt|copy|proxy|socks)::|([^[:space:]]*::)?(root|guest|timeless|on_linux)_)[^[:space:]]*$' \
			>"$logs/list-kernel" &&
		threads=2 run_together "$logs/list-kernel"
}

# The Python package as pip installs it: the wheel, with the program in it. That is the portable one, which the next build replaces: no
# other stage may run meanwhile.
stage_python() {
	install_wheel && (cd py && "$python" -m mypy python) && test_python -m 'not cluster'
}

# Sweeps on Slurm and Ray.
stage_clusters() {
	command -v sbatch >/dev/null && "$python" -c 'import ray' 2>/dev/null || cannot "no Slurm or Ray; run: scripts/setup.sh clusters" || return
	install_wheel && test_python -m cluster
}

python=$PWD/target/python/bin/python

install_wheel() {
	"$python" -c 'import maturin' 2>/dev/null || cannot "no Python libraries; run: scripts/setup.sh test" || return
	rm -rf "$logs/wheel"
	(cd py && "$python" -m maturin build --quiet --profile dev --out "$logs/wheel") &&
		"$python" -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall "$logs"/wheel/*.whl
}

test_python() { (cd py && env -u VMCC "$python" -m pytest --quiet -p no:cacheprovider "$@"); }

portable_folders() { # of the default members that are the same with kernel code
	cargo metadata --locked --no-deps --format-version 1 | python3 -c '
import json, os, sys
metadata = json.load(sys.stdin)
folders = {one["id"]: os.path.dirname(one["manifest_path"]) for one in metadata["packages"]}
print(*(folders[one] for one in metadata["workspace_default_members"] if not folders[one].endswith(("/cli", "/linux/port"))), sep="\n")'
}

# What some tests start: `cargo test` leaves out examples where targets are named, or builds them as tests.
examples=(cargo build --locked --workspace "${kernel_features[@]}" --example two_paths)
build_examples() { "${examples[@]}"; }

# Builds the tests of every crate, with kernel code, once and lists them in $logs/tests.
build_tests() {
	[ -e "$logs/tests" ] || { build_examples && tests_of "$logs/tests" "${compile_tests[@]}"; }
}
compile_tests=(cargo test --locked --no-run --workspace "${kernel_features[@]}" --tests)

# Writes what tests cargo built, a line each: folder, program, what runs in a process of its own, the test's name. That is a
# library's tests, or a module of the other programs, whose tests change what a process has but one of.
tests_of() { # tests_of LIST COMMAND...: of cargo
	local list=$1
	shift
	"$@" --message-format json-render-diagnostics | python3 -c '
import json, os, subprocess, sys
for message in map(json.loads, sys.stdin):
    if not (message.get("executable") and message["profile"]["test"]):
        continue
    program, folder, target = message["executable"], os.path.dirname(message["manifest_path"]), message["target"]
    listed = subprocess.run([program, "--list", "--format", "terse"], check=True, capture_output=True, text=True).stdout
    rows = []
    for name in (line.removesuffix(": test") for line in listed.splitlines() if line.endswith(": test")):
        module = name.rpartition("::")[0] if target["kind"] == ["test"] else ""
        own = [target["name"], *module.removeprefix(target["name"] + "::").split("::")] if module else [target["name"]]
        rows.append((os.path.basename(folder) + "/" + "::".join(own), name))
    for own, name in sorted(rows):
        print(folder, program, own, name, sep="\t")' >"$list.building" || return
	mv "$list.building" "$list"
}

# What each program is started by, if anything, and how many of its tests run at once.
wrapper=()
threads=1

run_tests() { # run_tests LIST [ARGUMENTS...]: one process at a time; the arguments are libtest's
	local list=$1 dir binary process tests status begin used failed=0 TIMEFORMAT='%U %S'
	shift
	while IFS=$'\t' read -r dir binary process tests; do
		printf '\n     Running %s\n' "$process"
		begin=$SECONDS
		# Names of tests have no spaces.
		# shellcheck disable=SC2086
		used=$({ time (cd "$dir" && "${wrapper[@]}" "$binary" --test-threads="$threads" "$@" --exact $tests </dev/null >&3 2>&4 3>&- 4>&-); } 2>&1)
		status=$?
		awk -v used="${used##*$'\n'}" -v took="$((SECONDS - begin))" -v name="$process" \
			'BEGIN { split(used, s, " "); printf "%d s of CPU in %d s: %s\n", s[1] + s[2], took, name }' >>"$logs/durations"
		[ $status = 0 ] || { failed=1 && echo "error: $process failed with code $status"; }
		[ $status -lt 128 ] || echo "error: $process was ended (signal: $((status - 128)))"
	done < <(processes "$list") 3>&1 4>&2
	return $failed
}

processes() { # processes LIST: a line for each process, with the names of its tests at the end
	awk -F '\t' '$3 != own { printf "%s%s\t%s\t%s\t", end, $1, $2, $3; own = $3; end = "\n" }
		{ printf "%s ", $4 } END { printf "%s", end }' "$1"
}

# For tests that only compute, or wait: as many processes at once as there are cores, each into a log of its own.
run_together() { # run_together LIST ARGUMENTS...: as run_tests
	local list=$1 own status=0 count=0
	shift
	while read -r own; do
		[ "$count" -lt "$(nproc)" ] || wait -n || status=1
		awk -F '\t' -v own="$own" '$3 == own' "$list" >"$list.$count"
		run_tests "$list.$count" "$@" &>"$list.$count.log" &
		count=$((count + 1))
	done < <(cut -f 3 "$list" | uniq)
	for own in $(seq "$(($(nproc) < count ? $(nproc) : count))"); do wait -n || status=1; done
	[ "$count" = 0 ] || cat "$list".*.log
	return $status
}

# The tests that failed, from logs of `run_tests`: the list that libtest ends with (a test may print another before), or
# "?" for a program that failed and listed none.
failed_tests() { # failed_tests LOG...
	awk '/^failures:$/ { delete name; listing = 1 } /^test result/ { listing = 0 }
		listing && /^    [^ ]+$/ { name[$1] }
		/^error: [^ ]+ failed with code / { none = 1; for (one in name) { print one; none = 0 } if (none) print "?" }
		/^     Running / { delete name; listing = 0 }' "$@" | sort -u
}

# The listed tests whose names have PREFIX: its tier.
tier() { # tier PREFIX [LIST]
	grep -E "[[:space:]]([^[:space:]]*::)?$1[^[:space:]:]*\$" "${2:-$logs/tests}" || {
		echo "error: there is no test called $1..." >&2
		return 1
	}
}

# Runs tests; what failed is tried once more by itself, because machines are shared and these tests are about what a machine
# carries. The summary names it.
run_twice() { # run_twice LIST [RUN]: RUN is run_tests or run_together
	local list=$1 log=$1.first failed
	"${2:-run_tests}" "$list" 2>&1 | tee "$log"
	[ "${PIPESTATUS[0]}" != 0 ] || return 0
	mapfile -t failed < <(failed_tests "$log")
	# A test took its process down, or it is no accident.
	if [ ${#failed[@]} = 0 ] || [ ${#failed[@]} -gt 4 ] || is_one_of "?" "${failed[@]}" ||
		grep -q '(signal: ' "$log"; then
		return 1
	fi
	echo "once more, each by itself: ${failed[*]}"
	grep -E "[[:space:]]($(IFS='|' && echo "${failed[*]}"))\$" "$list" >"$list-again"
	threads=1 run_tests "$list-again" 2>&1 | tee "$log.again"
	[ "${PIPESTATUS[0]}" = 0 ] || return 1
	# A guest's own tests are counted inside of one of ours.
	[ "$(awk '/^test result: ok/ { n += $4 } END { print n + 0 }' "$log.again")" -ge ${#failed[@]} ] || return 1
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

# Modules whose tests load no algorithm; most serve ports. Each sees records and pins of its own alone.
of_ports='/root::private::'
# Modules about what an agent keeps in the kernel, says of it and closes; and about what others leave there.
of_agents='/root::agents::'

stage_ports() {
	# Ports of so low rates that several are filled at once.
	local threads=3
	# shellcheck disable=SC2016
	local wrapper=(unshare --mount sh -c 'mount -t tmpfs -o mode=755 none /run && mount -t bpf none /sys/fs/bpf && exec "$@"' sh)
	run_on_this_kernel -E "$of_ports"
}

# One at a time: they share the kernel's list of algorithms, and measure what it carries.
stage_root() {
	local wrapper=("${in_turn[@]}")
	run_on_this_kernel -vE "$of_ports|$of_agents"
}

stage_agents() {
	local wrapper=("${in_turn[@]}")
	run_on_this_kernel -E "$of_agents"
}

run_on_this_kernel() { # run_on_this_kernel ARGUMENTS...: those of the root tests that grep selects
	local reason list
	reason=$(why_not_on_this_kernel)
	[ -z "$reason" ] || { cannot "$reason" || return; }
	list=$(mktemp "$logs/list-XXXXXX")
	build_tests && tier root_ | grep "$@" >"$list" && run_twice "$list"
}

# Guests with the host's clock: one at a time, each wants every core. A VM on taps meets the host's algorithms.
stage_guests() {
	local list=$logs/list-guests status=0 wrapper=()
	build_tests && tier guest_ >"$list" || return
	grep -v /guest::taps "$list" >"$list-alone"
	grep /guest::taps "$list" >"$list-in-turn"
	run_twice "$list-alone" || status=1
	wrapper=("${in_turn[@]}")
	run_twice "$list-in-turn" || status=1
	return $status
}

# Guests that measure no time, or have a clock of instructions: they need one core each and no hurry. The longest first, or
# one would be left at the end, alone.
stage_timeless() {
	local list=$logs/list-timeless longest='/guest::(boot|netem|reductions|turns)[[:space:]]'
	build_tests && tier timeless_ >"$list" && { grep -E "$longest" "$list" && grep -vE "$longest" "$list"; } >"$list-ordered" &&
		run_twice "$list-ordered" run_together
}

# The kernels between the oldest and the newest, and the long comparisons.
stage_more-guests() {
	build_tests && tier on_linux_ >"$logs/list-more-guests" && run_tests "$logs/list-more-guests" --ignored
}

stage_release() { cargo build --locked --release -p vmcc --features kernel; }

# Exit code 1 is a claim that failed. They are about what this machine carries, and it may have been busy for a moment.
stage_demo() {
	local status
	build_tests || return
	# Agents may still have theirs in the kernel's list of algorithms.
	"${in_turn[@]}" "$vmcc" demo
	status=$?
	[ $status = 1 ] || return $status
	echo "once more: a claim failed"
	"${in_turn[@]}" "$vmcc" demo
}

# The host's own kernel is the root stage's: root_kernel_check. A guest that gets hardly any processor time may break off.
stage_matrix() {
	build_tests || return
	VMCC=$vmcc scripts/kernel-matrix.sh 6.1 newest && return
	echo "once more: a check failed"
	VMCC=$vmcc scripts/kernel-matrix.sh 6.1 newest
}

# --- running them -----------------------------------------------------------------------------

stages=("${@:-${all_stages[@]}}")
for stage in "${stages[@]}"; do
	if ! declare -F "stage_$stage" >/dev/null; then
		echo "unknown stage \"$stage\"; there are: ${all_stages[*]} ${more_stages[*]}" >&2
		exit 2
	fi
done

summary=()
failures=()
left_out=0
started=$SECONDS
logs=$(mktemp -d) || exit
trap 'rm -rf "$logs"' EXIT
# Tests whose control did not reach its share append their names here (crates/testkit).
export VMCC_INCONCLUSIVE=$logs/inconclusive

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

# The asked-for ones of STAGES that are in a lane, or in none.
chosen() { # chosen in|out STAGES...
	local stage where
	for stage in "${@:2}"; do
		where=out
		# shellcheck disable=SC2068 # a lane is a list of stages
		! is_one_of "$stage" ${lanes[@]} || where=in
		if [ "$1" = "$where" ] && is_one_of "$stage" "${stages[@]}"; then printf '%s ' "$stage"; fi
	done
}

run_lane() { # run_lane STAGES...
	local stage
	for stage; do
		run_stage "$stage" >/dev/null
		printf -- '--- %s has ended, after %d s\n' "$stage" "$((SECONDS - started))"
	done
}

alone=$(chosen out "${stages[@]}")
beside=()
for lane in "${lanes[@]}"; do
	# shellcheck disable=SC2086
	lane=$(chosen in $lane)
	[ -z "$lane" ] || beside+=("$lane")
done
[ ${#beside[@]} -gt 1 ] || alone+=${beside[*]} beside=()

for stage in $alone; do
	printf '\n=== %s ===\n' "$stage"
	run_stage "$stage"
	judge "$stage"
done
if [ ${#beside[@]} != 0 ]; then
	# Before, so that they do not wait for each other's lock. What is wrong is heard by each that needs it.
	! is_one_of libraries "${stages[@]}" || build_portable >/dev/null
	build_tests >/dev/null
	# shellcheck disable=SC2086
	for lane in "${beside[@]}"; do run_lane $lane & done
	wait
fi
# shellcheck disable=SC2068
for stage in ${beside[@]}; do
	printf '\n=== %s, beside others ===\n' "$stage"
	# Of what passed the end is enough.
	case $(<"$logs/$stage.result") in "0 "*) tail -n 4 "$logs/$stage" ;; *) cat "$logs/$stage" ;; esac
	judge "$stage"
done

printf '\n================ summary ================\n'
printf '%s\n' "${summary[@]}"
printf '=========================================\n'
[ ! -e "$logs/second-try" ] || printf 'passed at the second try: %s\n' "$(tr '\n' ' ' <"$logs/second-try")"
[ ! -e "$logs/durations" ] || printf 'what costs most: %s\n' "$(sort -rn "$logs/durations" | head -n 24 | paste -sd , | sed 's/,/, /g')"
# More than 2 % of all tests say that this machine cannot run them.
if [ -e "$VMCC_INCONCLUSIVE" ]; then
	ran=$(cat "${stages[@]/#/$logs/}" 2>/dev/null | grep -cE '^test .* ok$')
	inconclusive=$(sort -u "$VMCC_INCONCLUSIVE" | wc -l)
	printf '%d of %d tests are inconclusive, because the machine was busy:\n' "$inconclusive" "$ran"
	sort -u "$VMCC_INCONCLUSIVE"
	[ $((inconclusive * 50)) -le "$ran" ] || failures+=(inconclusive)
fi
took=$(((SECONDS - started) / 60))min$(((SECONDS - started) % 60))s
# Not in a pipe, whose processes have used nothing.
times >"$logs/times"
echo "processor time, of programs and in the kernel: $(tail -n 1 "$logs/times")"
if [ ${#failures[@]} -gt 0 ]; then
	# Of a log, often only the end is read or kept.
	for stage in "${failures[@]}"; do
		printf '\n--- %s, of its output:\n' "$stage"
		grep -E 'panicked at|FAIL|^error|^left out' -A 2 "$logs/$stage" | tail -n 8 | cut -c -140
	done
	echo "FAILED: ${#failures[@]} of ${#stages[@]} stages, after $took"
	exit 1
fi
echo "PASSED: $((${#stages[@]} - left_out)) of ${#stages[@]} stages ($left_out left out), after $took"
