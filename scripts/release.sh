#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Makes what a release consists of, in target/release-VERSION/: packages, debug symbols, source, notes, checksums.
#
#   scripts/release.sh VERSION [PREVIOUS.deb]
#
# VERSION is the workspace's, and CHANGELOG.md has a section with it and a date. As root the packages are also installed,
# upgraded from PREVIOUS.deb (default: the same program as version 0.0.1), removed and purged on a machine with systemd.
# Nothing is published and no tag is set: the last lines say how. Exit codes: 0 done, 1 a check failed, 2 wrong use.

set -euo pipefail
[ $# = 1 ] || [ $# = 2 ] || {
	sed -n '4,/^$/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
version=$1
previous=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
target=${CARGO_TARGET_DIR:-target}
folder=$target/release-$version
package_limit_bytes=30000000

refuse() {
	echo "release: $1" >&2
	exit 1
}

# Prints the body of the version's section of CHANGELOG.md.
notes() { awk -v head="## [$version]" 'index($0, "## ") == 1 { on = index($0, head) == 1; next } on' CHANGELOG.md; }

check() {
	local written
	written=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml)
	[ "$written" = "$version" ] || refuse "Cargo.toml has version $written; set it to $version and run cargo check"
	[ -z "$(git status --porcelain)" ] || refuse "files are not committed; commit or stash them"
	grep -Eq "^## \[$version\] - [0-9]{4}-[0-9]{2}-[0-9]{2}$" CHANGELOG.md ||
		refuse "CHANGELOG.md has no line \"## [$version] - YYYY-MM-DD\"; move the unreleased entries below one"
	! git rev-parse --quiet --verify "refs/tags/v$version" >/dev/null ||
		refuse "tag v$version exists; a release is never made twice, choose the next version"
	cargo metadata --locked --no-deps --format-version 1 >/dev/null || refuse "Cargo.lock is old; run cargo check and commit it"
}

build() {
	rm -rf "$folder"
	mkdir -p "$folder"
	make --no-print-directory deb
	cp "$target"/vmcc_"$version"_*.deb "$target"/vmcc-dbgsym_"$version"_*.deb "$folder/"
	git archive --format tar.gz --prefix "vmcc-$version/" --output "$folder/vmcc-$version.tar.gz" HEAD
	notes >"$folder/notes.md"
	(cd "$folder" && sha256sum -- * >SHA256SUMS)
}

# The program as it lies in the package, without its debug symbols.
check_size() {
	local bytes
	bytes=$(dpkg-deb --fsys-tarfile "$folder"/vmcc_"$version"_*.deb | tar --extract --to-stdout ./usr/bin/vmcc | wc -c)
	[ "$bytes" -le $package_limit_bytes ] || refuse "the packaged program has $bytes bytes, more than $package_limit_bytes"
	echo "release: the packaged program has $bytes bytes"
}

try_upgrade() {
	[ "$(id -u)" = 0 ] || refuse "the upgrade is tried as root; run this as root, or publish nothing"
	# It loads algorithms: in turns with the tests (scripts/test.sh).
	VMCC_NEW_PACKAGE=$(realpath "$folder"/vmcc_"$version"_*.deb) VMCC_OLD_PACKAGE=$previous \
		flock "$target/algorithms.lock" cargo test --locked --workspace --features "vmcc/kernel,vmcc/root-tests,vmcc-lab/root-tests" \
		--test root -- root_package_is_installed_upgraded_removed_and_purged
}

check
build
check_size
try_upgrade
cat <<END
release: $folder is complete. To publish:
  git tag --sign v$version --file $folder/notes.md && git push origin v$version
  attach the files of $folder to the release of that tag
END
