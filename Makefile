# SPDX-License-Identifier: MIT
# The front door. Each target sets up what it needs (tools/setup says what it does); everything else is meson, pytest and
# tools/. JOBS=N limits parallel work.
#
#   make demo         two OpenCL programs, 40 % and 60 % of one GPU, live; then a table and build/demo/shares.png
#   make check        all tests, the quick tier of each; ends with "N passed, N failed, N skipped"
#   make check-full   everything that a machine without a GPU can run
#   make bench        the ratios of docs/results.md on a machine without a GPU; build/bench/*.json (make gpu: the rest)
#   make reference    pages of the Python package, from its docstrings, in build/reference
#   make deb          Debian packages, into build/deb; the same tree gives the same packages
#   make vm KERNEL=6.1, make vm-all, make kmod, make gpu

SECONDS ?= 20
KERNEL  ?= 6.1
REFERENCE = $(patsubst lab/rtxg/%.py,rtxg.%,$(wildcard lab/rtxg/[a-z]*.py))
export SECONDS JOBS

all: ; @tools/setup demo && tools/build
demo: ; @tools/setup demo && tools/build && demo/run
check: ; @tools/setup check && tools/check
check-full: ; @tools/setup full && tools/check --full
bench: ; @tools/setup check && tools/build && bench/run
vm: ; @tools/setup check && tests/vm/run $(KERNEL)
vm-all: ; @tools/setup full && tests/vm/run --all --slow
# Sources are mirrored first, so that no object file is left in the tree.
kmod: ; @mkdir -p build/kmod && cp -ru kmod core include build/kmod/ && $(MAKE) --no-print-directory -C build/kmod/kmod
reference: ; @tools/setup check && build/venv/bin/pdoc -o build/reference rtxg $(REFERENCE)
gpu: ; @tools/setup gpu && tools/build && tests/gpu/run
deb: ; @tools/setup deb && packaging/deb
install: all ; @meson install -C build/release

.PHONY: all demo check check-full bench reference vm vm-all kmod gpu deb install
