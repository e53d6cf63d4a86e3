#!/usr/bin/env bash
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Builds the documents as a site, target/site/html: with search, without anything from the network. A link or heading that
# does not exist, or a page that mkdocs.yml does not list, is an error.
#
#   scripts/site.sh           builds it
#   scripts/site.sh --open    serves it at 127.0.0.1:8000 and opens a browser, until Ctrl-C
#
# Exit codes: 0 built, 1 something is wrong with a document, 2 wrong use, 3 the generator is missing (scripts/setup.sh docs).

set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
"" | --open) ;;
*)
	sed -n '4,/^$/s/^# \{0,1\}//p' "$0" >&2
	exit 2
	;;
esac
generator=target/site-python/bin/mkdocs
[ -x "$generator" ] || {
	echo "site: $generator is missing: run scripts/setup.sh docs" >&2
	exit 3
}

# Pages keep their places in the repository, so that their links hold in both.
source=target/site/source
rm -rf "$source"
mkdir -p "$source"
git ls-files '*.md' docs | grep -v '^[^d][^/]*/\|^docs/demo.txt' | while read -r page; do
	mkdir -p "$source/$(dirname "$page")"
	cp "$page" "$source/$page"
done
# Said of its own future by the theme's authors at every start.
export NO_MKDOCS_2_WARNING=1
[ "${1:-}" != --open ] || exec "$generator" serve --open
"$generator" build || exit 1
echo "$PWD/target/site/html/index.html"
