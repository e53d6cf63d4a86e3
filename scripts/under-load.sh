#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs the stages that measure while something else uses the machine, to show that their verdicts are about the program.
#
#   scripts/under-load.sh [CONDITION...]      default: all of `conditions`
#
# Conditions: busy, two endless loops at normal priority; compiler, a compiler and a writer to disk without pause; one-cpu, one
# processor. A table goes to standard output. Results are kept in target/under-load/COMMIT: a second call continues after the
# last stage that ended. Exit codes: 0 every stage passed, 1 one failed, 2 wrong use.

# shellcheck disable=SC2317 # the functions named after conditions are called by that name
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
conditions=(busy compiler one-cpu)
stages=(root agents guests demo)
results=target/under-load/$(git rev-parse --short HEAD)
scratch=$(mktemp -d) || exit
load=()
trap 'end_load; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

end_load() {
	[ ${#load[@]} = 0 ] || kill -- "${load[@]/#/-}" 2>/dev/null
	load=()
}

# Each in a process group of its own, which is ended as a whole.
start_load() { # start_load COMMAND...
	setsid "$@" &>/dev/null &
	load+=($!)
}

busy() {
	start_load sh -c 'while :; do :; done'
	start_load sh -c 'while :; do :; done'
}

compiler() {
	{
		for number in $(seq 2000); do
			echo "double f$number(double *a, int n) { double s = 0; for (int i = 1; i < n; i++) s += a[i] * a[i - 1] / (s + $number); return s; }"
		done
	} >"$scratch/long.c"
	start_load sh -c "while cc -O2 -c -o '$scratch/long.o' '$scratch/long.c'; do :; done"
	start_load sh -c "while dd if=/dev/zero of='$scratch/written' bs=1M count=256 conv=fsync; do :; done"
}

one-cpu() { taskset -p -c 0 "$BASHPID" >/dev/null; }

for condition in "${@:-${conditions[@]}}"; do
	if [[ " ${conditions[*]} " != *" $condition "* ]]; then
		echo "unknown condition \"$condition\"; there are: ${conditions[*]}" >&2
		exit 2
	fi
done
mkdir -p "$results" || exit

failed=0
for condition in "${@:-${conditions[@]}}"; do
	for stage in "${stages[@]}"; do
		result=$results/$condition-$stage.result
		[ -e "$result" ] || (
			"$condition"
			trap end_load EXIT
			begin=$SECONDS
			scripts/test.sh "$stage" &>"$results/$condition-$stage.log"
			echo "$? $((SECONDS - begin))" >"$result.new"
			mv "$result.new" "$result"
		)
		read -r status seconds <"$result" || exit 1
		verdict=passed
		[ "$status" = 0 ] || { verdict=FAILED && failed=1; }
		printf '%-10s %-8s %-8s %5d s\n' "$condition" "$stage" "$verdict" "$seconds"
	done
done
exit $failed
