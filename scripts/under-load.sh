#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Runs the stages that measure while something else uses the machine, to show that their verdicts are about the program.
#
#   scripts/under-load.sh [CONDITION...]      default: all of `conditions`
#
# Conditions: busy, two endless loops at normal priority; compiler, a compiler and a writer to disk without pause; one-cpu, one
# processor. As always, lanes of stages run at the same time, so each is a load of the others too. A table goes to standard
# output. Results are kept in target/under-load/COMMIT: a second call continues after the last condition that ended. Exit
# codes: 0 every stage passed, 1 one failed, 2 wrong use.

# shellcheck disable=SC2317 # the functions named after conditions are called by that name
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
conditions=(busy compiler one-cpu)
stages=(ports root agents demo guests)
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

run_condition() { # run_condition CONDITION
	local result=$results/$1
	"$1"
	trap end_load EXIT
	trap 'exit 130' INT TERM
	# What runs in the background ignores interrupts, which tests send to programs.
	env --default-signal=INT,QUIT scripts/test.sh "${stages[@]}" &>"$result.log"
	echo $? >"$result.new"
	mv "$result.new" "$result.result"
}

failed=0
for condition in "${@:-${conditions[@]}}"; do
	[ -e "$results/$condition.result" ] || (run_condition "$condition")
	read -r status <"$results/$condition.result" || exit 1
	[ "$status" = 0 ] || failed=1
	sed -n '/= summary =/,/^====*$/p' "$results/$condition.log" | grep -v = | sed "s/^/$condition /"
	grep -E 'are inconclusive|^inconclusive|^passed at the second' "$results/$condition.log"
done
exit $failed
