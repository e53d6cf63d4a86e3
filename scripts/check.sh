#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Format, lints and the portable tests of what changed: what one wants to know before a commit, in
# under a minute when little changed. `make check` calls it; it sets nothing up and needs no root.
# Tests in modules called laws_* compute for long and belong to scripts/test.sh.
#
#   scripts/check.sh [BASE]      what changed since BASE (default: the last commit) and is not committed
#
# Exit codes: 0 nothing to complain of, 1 something failed, 2 wrong use.

set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
export PATH="$PATH:$HOME/.cargo/bin"
base=${1:-HEAD}
git rev-parse -q --verify "$base^{commit}" >/dev/null || {
	echo "check: \"$base\" is no commit; try: make check BASE=main" >&2
	exit 2
}

changed() { # changed PATTERN...: files that exist, changed since BASE or new
	{
		git diff --name-only --diff-filter=d "$base" -- "$@"
		git ls-files --others --exclude-standard -- "$@"
	} | sort -u
}

failed=0
try() {
	"$@" || {
		echo "check: failed: $*" >&2
		failed=1
	}
}

# The crates whose sources, manifests or inputs changed, as -p arguments.
packages() {
	{
		changed 'crates/*' | sed -E 's#^crates/((base|cc|quic|linux|experiment)/)?([a-z]+)/.*#\3#'
		[ -z "$(changed 'algorithms/*')" ] || echo cc
		[ -z "$(changed 'kernel/*')" ] || echo bpf
		[ -z "$(changed 'scenarios/*')" ] || echo scenario
	} | sort -u | sed 's/^cli$/vmcc/; t; s/^/vmcc-/'
}

# The kinds of targets that a package has.
targets() { # targets PACKAGE
	local dir
	dir=$(dirname "$(grep -lxF "name = \"$1\"" crates/*/Cargo.toml crates/*/*/Cargo.toml)")
	[ ! -e "$dir/src/lib.rs" ] || echo --lib
	[ ! -e "$dir/src/main.rs" ] || echo --bins
	[ ! -e "$dir/tests/it/main.rs" ] || echo --test=it
	# Those of the other tiers need privilege.
	find "$dir/tests" -maxdepth 1 -name '*.rs' ! -name root.rs ! -name guest.rs -printf '--test=%f\n' 2>/dev/null | sed 's/\.rs$//'
}

all=()
portable=()
chosen=()
while read -r package; do
	[ -n "$package" ] || continue
	all+=(-p "$package")
	# The others need clang and a kernel; scripts/test.sh has stages for them.
	case $package in vmcc-agent | vmcc-bpf | vmcc-guard | vmcc-lab | vmcc-netlink | vmcc-system) continue ;; esac
	portable+=(-p "$package")
	chosen+=("$package")
done < <(packages)
mapfile -t tested < <(for package in "${chosen[@]}"; do targets "$package"; done | sort -u)

mapfile -t c_files < <(changed '*.c' '*.h')
mapfile -t scripts < <(changed '*.sh' .ci/run)

try cargo fmt --all --check
[ ${#c_files[@]} -eq 0 ] || try "$(scripts/clang-format.sh)" --dry-run --Werror "${c_files[@]}"
[ ${#scripts[@]} -eq 0 ] || try shellcheck "${scripts[@]}"
[ ${#all[@]} -eq 0 ] || try cargo clippy --locked -q "${all[@]}" --all-targets -- -D warnings
[ ${#portable[@]} -eq 0 ] || try cargo test --locked -q "${portable[@]}" "${tested[@]}" -- --skip laws_
[ "$failed" = 0 ] && echo "check: nothing to complain of in: ${all[*]:-no crate}${c_files[*]:+, C}${scripts[*]:+, shell}"
exit "$failed"
