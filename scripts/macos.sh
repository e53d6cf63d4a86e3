#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Compiles for macOS, on Linux, what runs there: everything but the kernel engine. Types and C are checked; nothing is
# linked, for that needs Apple's libraries. The C compiler is zig's, from PyPI; the target's library comes by rustup.
#
#   scripts/macos.sh
#
# Exit codes: 0 it compiles, 1 it does not, 3 this host cannot be set up for it.

set -euo pipefail
cd "$(dirname "$0")/.."
export PATH="$PATH:$HOME/.cargo/bin"
target=aarch64-apple-darwin
tools=${CARGO_TARGET_DIR:-target}/macos
mkdir -p "$tools"
tools=$(cd "$tools" && pwd)

stop() {
	printf 'macos: %s\n' "$*" >&2
	exit 3
}

command -v rustup >/dev/null || stop "needs rustup, for the standard library of $target"
rustup --quiet target add "$target" || stop "rustup has no $target: check the network"
[ -x "$tools/zig/bin/python" ] || python3 -m venv "$tools/zig"
"$tools/zig/bin/python" -c 'import ziglang' 2>/dev/null ||
	"$tools/zig/bin/pip" install -q --disable-pip-version-check ziglang ||
	stop "pip install ziglang failed: check the network and pip's index"

# What the crate `cc` says of the target in Apple's words, zig wants in its own.
cat >"$tools/cc" <<'END'
#!/usr/bin/env bash
for word; do
	shift
	case $word in
	--target=* | -arch | arm64 | -mmacosx-version-min=*) ;;
	*) set -- "$@" "$word" ;;
	esac
done
exec "$(dirname "$0")/zig/bin/python" -m ziglang cc -target aarch64-macos "$@"
END
cat >"$tools/ar" <<'END'
#!/usr/bin/env bash
exec "$(dirname "$0")/zig/bin/python" -m ziglang ar "$@"
END
chmod +x "$tools/cc" "$tools/ar"

CC_aarch64_apple_darwin="$tools/cc" AR_aarch64_apple_darwin="$tools/ar" \
	cargo check --locked --target "$target" || exit 1
