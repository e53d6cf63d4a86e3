#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Makes a Debian package of a program that is built: with unit, configuration, alerts, dashboard, manual pages and shell
# completions, which are the program's own answers.
#
#   scripts/deb.sh PROGRAM FOLDER [VERSION]      default: the workspace's version
#
# Prints the package's path. Debug symbols, if the program has them, go into vmcc-dbgsym beside it.
# DEB_COMPRESS=none packs quickly. Exit codes: 0 done, 2 wrong use, 3 this host cannot.

set -euo pipefail
[ $# = 2 ] || [ $# = 3 ] || {
	sed -n '4,/^$/s/^# \{0,1\}//p' "$0" >&2
	exit 2
}
program=$(realpath "$1")
mkdir -p "$2"
folder=$(realpath "$2")
root=$(realpath "$(dirname "$0")/..")
field() { sed -n "s/^$1 = \"\(.*\)\"/\1/p" "$root/Cargo.toml"; }
version=${3:-$(field version)}
for tool in dpkg-deb dpkg-shlibdeps objcopy strip; do
	command -v "$tool" >/dev/null || {
		echo "deb: no $tool here; run: scripts/setup.sh deb" >&2
		exit 3
	}
done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/vmcc
architecture=$(dpkg --print-architecture)
put() { install -D -m "${3:-644}" "$1" "$tree/$2"; } # put FILE PLACE [MODE]

pack() { # pack TREE: makes the package whose DEBIAN/control is there, and prints its path
	local name package
	name=$(sed -n 's/^Package: //p' "$1/DEBIAN/control")
	package=$folder/${name}_${version}_$architecture.deb
	(cd "$1" && find usr -type f -exec md5sum {} + | LC_ALL=C sort -k 2 >DEBIAN/md5sums)
	dpkg-deb --root-owner-group -Z"${DEB_COMPRESS:-xz}" --build "$1" "$package" >/dev/null
	echo "$package"
}

# What gdb and perf look for when they meet usr/bin/vmcc.
pack_symbols() {
	local tree=$work/symbols
	local file=$tree/usr/lib/debug/usr/bin/vmcc.debug
	mkdir -p "$(dirname "$file")" "$tree/DEBIAN"
	objcopy --only-keep-debug --compress-debug-sections "$program" "$file"
	chmod 644 "$file"
	objcopy --add-gnu-debuglink="$file" "$1"
	cat >"$tree/DEBIAN/control" <<-END
		Package: vmcc-dbgsym
		Version: $version
		Architecture: $architecture
		Maintainer: $maintainer
		Depends: vmcc (= $version)
		Section: debug
		Priority: optional
		Description: debug symbols for vmcc
	END
	pack "$tree" >/dev/null
}

maintainer=$(sed -n 's/^Maintainer: //p' "$root/dist/debian/control.in")
put "$program" usr/bin/vmcc 755
strip "$tree/usr/bin/vmcc"
! objdump --section-headers "$program" | grep -q ' \.debug_line' || pack_symbols "$tree/usr/bin/vmcc"
put "$root/dist/vmcc.service" usr/lib/systemd/system/vmcc.service
put "$root/dist/vmcc.toml" etc/vmcc/vmcc.toml
put "$root/dist/vmcc-alerts.yml" usr/share/vmcc/vmcc-alerts.yml
put "$root/dist/grafana-vmcc.json" usr/share/vmcc/grafana-vmcc.json
for page in "$root"/docs/{glossary.md,tutorial/*.md,how-to/*.md,reference/*.md,explanation/*.md}; do
	put "$page" "usr/share/doc/vmcc/${page#"$root/docs/"}"
done

mkdir -p "$tree/usr/share/man/man1"
"$program" internal man "$tree/usr/share/man/man1" >/dev/null
gzip -9n "$tree"/usr/share/man/man1/*.1
complete() { # complete SHELL PLACE
	"$program" internal completions "$1" >"$work/completions"
	put "$work/completions" "$2"
}
complete bash usr/share/bash-completion/completions/vmcc
complete zsh usr/share/zsh/vendor-completions/_vmcc
complete fish usr/share/fish/vendor_completions.d/vmcc.fish

{
	echo "vmcc, $(field repository)"
	echo "Copyright: the vmcc authors; licence: MIT or Apache-2.0, of the programs in BPF GPL-2.0-only or BSD-2-Clause."
	echo "Apache-2.0 and GPL-2.0 are in /usr/share/common-licenses; the other two:"
	for licence in LICENSE-MIT LICENSES/BSD-2-Clause.txt; do printf '\n%s\n\n' "$licence" && cat "$root/$licence"; done
} >"$work/copyright"
put "$work/copyright" usr/share/doc/vmcc/copyright
gzip -9nc "$root/CHANGELOG.md" >"$work/news.gz"
put "$work/news.gz" usr/share/doc/vmcc/NEWS.gz
# In the form that tools for packages read; what changed stands in the other file.
date=$(date --rfc-email --date "@${SOURCE_DATE_EPOCH:-$(stat -c %Y "$root/CHANGELOG.md")}")
printf 'vmcc (%s) unstable; urgency=medium\n\n  * What changed: NEWS.gz.\n\n -- %s  %s\n' "$version" "$maintainer" "$date" |
	gzip -9nc >"$work/changelog.gz"
put "$work/changelog.gz" usr/share/doc/vmcc/changelog.gz
put "$root/dist/debian/lintian-overrides" usr/share/lintian/overrides/vmcc

# It reads a source package's control file, of which there is none.
mkdir -p "$work/debian"
printf 'Source: vmcc\n\nPackage: vmcc\nArchitecture: any\n' >"$work/debian/control"
depends=$(cd "$work" && dpkg-shlibdeps -O "$tree/usr/bin/vmcc" 2>"$work/said") || {
	cat "$work/said" >&2
	exit 3
}
mkdir "$tree/DEBIAN"
sed -e "s|@VERSION@|$version|" -e "s|@ARCHITECTURE@|$architecture|" \
	-e "s|@SIZE@|$(du -sk --exclude=DEBIAN "$tree" | cut -f 1)|" -e "s|@HOMEPAGE@|$(field repository)|" \
	-e "s|@DEPENDS@|${depends#shlibs:Depends=}|" "$root/dist/debian/control.in" >"$tree/DEBIAN/control"
echo /etc/vmcc/vmcc.toml >"$tree/DEBIAN/conffiles"
for script in postinst prerm postrm; do put "$root/dist/debian/$script" "DEBIAN/$script" 755; done

pack "$tree"
