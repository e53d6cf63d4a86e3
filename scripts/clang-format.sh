#!/bin/sh
# SPDX-License-Identifier: MIT OR Apache-2.0
#
# Prints the clang-format to use. Versions differ in what they call formatted; the sources follow 19.
for name in clang-format-19 clang-format; do
	! command -v "$name" && continue
	exit 0
done
echo "clang-format-19 is missing: run make setup-test" >&2
exit 3
