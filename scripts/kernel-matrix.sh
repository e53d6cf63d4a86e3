#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Prints a table, kernel by algorithm: does it load, attach and carry an MPTCP transfer whose hash is
# right? Runs `vmcc internal kernel-check` on the host and inside a guest per kernel series.
#
#   scripts/kernel-matrix.sh WHERE...       WHERE: host, a series such as 6.1, or newest
#
# Exit codes: 0 everything works or the kernel cannot (said so, with what is missing), 1 a check
# failed, 2 wrong use.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
vmcc=${VMCC:-${CARGO_TARGET_DIR:-target}/release/vmcc}
[ $# -gt 0 ] || {
	sed -n '4,/^$/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}

out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failed=0

for where in "$@"; do
	echo "checking $where" >&2
	if [ "$where" = host ]; then
		"$vmcc" internal kernel-check >"$out/$where"
	else
		kernel=(--kernel "$where")
		# The program's own default.
		[ "$where" != newest ] || kernel=()
		"$vmcc" internal guest "${kernel[@]}" --time-limit 1200 -- "$(realpath "$vmcc")" internal kernel-check >"$out/$where"
	fi || {
		echo "$where: the check failed" >&2
		failed=1
	}
	# A check that said nothing has checked nothing.
	grep -q "$(printf '\t')" "$out/$where" || {
		echo "$where: no result" >&2
		failed=1
	}
done

# Lines are "algorithm<TAB>ok|fail|unsupported<TAB>detail".
awk -F '\t' -v columns="$*" -v dir="$out" '
	BEGIN {
		n = split(columns, where, " ")
		for (i = 1; i <= n; i++) {
			while ((getline line < (dir "/" where[i])) > 0) {
				if (split(line, f, "\t") < 2) continue
				if (!(f[1] in seen)) { seen[f[1]] = 1; order[++rows] = f[1] }
				cell[f[1], i] = f[2]
				if (f[2] != "ok") notes[++m] = sprintf("%s on %s: %s: %s", f[1], where[i], f[2], f[3])
			}
		}
		printf "%-16s", "algorithm"
		for (i = 1; i <= n; i++) printf "%-12s", where[i]
		print ""
		for (r = 1; r <= rows; r++) {
			printf "%-16s", order[r]
			for (i = 1; i <= n; i++) printf "%-12s", ((order[r], i) in cell) ? cell[order[r], i] : "-"
			print ""
		}
		for (i = 1; i <= m; i++) print notes[i]
	}'
exit $failed
