#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs the stages that measure while something else uses the machine, to show that their verdicts are about the program.
#
#   scripts/under-load.sh [CONDITION...]      default: all of `conditions`
#
# Conditions: busy, two endless loops at normal priority; compiler, a compiler and a writer to disk without pause; one-cpu, one
# processor. Stages of different lanes run at the same time, so each is a load of the others too. A table goes to standard
# output. Results are kept in target/under-load/COMMIT: a second call continues after the last stage that ended. Exit codes:
# 0 every stage passed, 1 one failed, 2 wrong use.

# shellcheck disable=SC2317 # the functions named after conditions are called by that name
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
conditions=(busy compiler one-cpu)
lanes=(ports "root agents demo" guests)
results=target/under-load/$(git rev-parse --short HEAD)
scratch=$(mktemp -d) || exit
load=()
trap 'end_load; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

end_load() {
	[ ${#load[@]} = 0 ] || kill -- "${load[@]/#/-}" 2>/dev/null
	load=()
}

# In a session of its own, as from another login, which is ended as a whole.
start_load() { # start_load COMMANDS: of a shell
	setsid sh -c "$1" &>/dev/null &
	load+=($!)
}

busy() { start_load 'while :; do :; done & while :; do :; done'; }

compiler() {
	{
		for number in $(seq 2000); do
			echo "double f$number(double *a, int n) { double s = 0; for (int i = 1; i < n; i++) s += a[i] * a[i - 1] / (s + $number); return s; }"
		done
	} >"$scratch/long.c"
	start_load "while cc -O2 -c -o '$scratch/long.o' '$scratch/long.c'; do :; done &
		while dd if=/dev/zero of='$scratch/written' bs=1M count=256 conv=fsync; do :; done"
}

one-cpu() { taskset -p -c 0 "$BASHPID" >/dev/null; }

for condition in "${@:-${conditions[@]}}"; do
	if [[ " ${conditions[*]} " != *" $condition "* ]]; then
		echo "unknown condition \"$condition\"; there are: ${conditions[*]}" >&2
		exit 2
	fi
done
mkdir -p "$results" || exit

# Runs what has no result yet; the load lasts as long.
run_condition() { # run_condition CONDITION
	local lane pids=()
	"$1"
	trap end_load EXIT
	trap 'exit 130' INT TERM
	for lane in "${lanes[@]}"; do
		run_lane "$1" "$lane" &
		pids+=($!)
	done
	wait "${pids[@]}"
}

run_lane() { # run_lane CONDITION STAGES
	local stage result begin
	for stage in $2; do
		result=$results/$1-$stage
		[ ! -e "$result.result" ] || continue
		begin=$SECONDS
		# What runs in the background ignores interrupts, which tests send to programs.
		env --default-signal=INT,QUIT scripts/test.sh "$stage" &>"$result.log"
		echo "$? $((SECONDS - begin))" >"$result.new"
		mv "$result.new" "$result.result"
	done
}

failed=0
for condition in "${@:-${conditions[@]}}"; do
	(run_condition "$condition")
	# shellcheck disable=SC2068 # a lane is a list of stages
	for stage in ${lanes[@]}; do
		read -r status seconds <"$results/$condition-$stage.result" || exit 1
		verdict=passed
		[ "$status" = 0 ] || { verdict=FAILED && failed=1; }
		printf '%-10s %-8s %-8s %5d s\n' "$condition" "$stage" "$verdict" "$seconds"
	done
done
exit $failed
