# Each of these is one command on a machine that has Python 3.10 or newer, pip and make; all else goes into .venv.
#
#     make demo     kill a computation, serial and on four ranks, and see that nothing of it is lost (a minute or two)
#     make quick    a first look at a change: for a minute, the tests nearest to what differs from main
#     make test     every promise, on small cases and on samples of large families (five minutes)
#     make proof    real mounts, kernels, ranks and programs, and what takes seconds a test (ten minutes)
#     make proof-all  both of these, with many more cases (hours); before a release
#     make check    style, types, layers, and the links of the site (seconds)
#     make crash    thousands of kills and power cuts; writes docs/evidence.md (as root it makes real ones);
#                   names failures as they come, and keeps in build what it has when it is interrupted
#     make crash-all  the same with every case there is
#     make check-suites  safepoint check on the public suites of MPI mistakes (half an hour); writes
#                   docs/check-evidence.md. SUITES=DIR says where they are, if not in ../shared/suites. And each
#                   template that is shipped with both MPIs
#     make docs     the site of the documentation: open build/site/index.html; to search in it it needs a server, such
#                   as python3 -m http.server -d build/site. It writes docs/cli.md, the page of all commands, anew
#     make bench    safepoint beside other ways to save; a page and plots in benchmarks/results (twenty minutes)
#     make bench-more  all other benchmarks (half an hour)
#     make clean    remove all that these have made

PYTHON ?= python3
VENV := .venv/bin/python
INSTALL := PYTHONWARNINGS=ignore $(VENV) -m pip install --quiet --disable-pip-version-check

# Where it is set, each of thousands of processes compiles the package anew.
unexport PYTHONDONTWRITEBYTECODE

# What make bench compares with; what cannot be had is left out. `make bench PEERS=` installs nothing.
PEERS ?= torch==2.13.0 orbax-checkpoint jax

.PHONY: demo quick test proof proof-all check check-style check-types check-house check-suites crash crash-all docs bench bench-more clean

demo: .venv/.demo
	$(VENV) examples/demo.py

# In the order of nearness: of main, or of TOUCHED=REV.
quick: .venv/.dev
	$(VENV) -m pytest -n 2 --dist loadgroup --no-loadscope-reorder --touched=$(TOUCHED)

# More than there are cores, here and below: most of them wait, for ranks, disks or Slurm.
test: .venv/.dev .venv/.servers
	$(VENV) -m pytest -n 4 --dist loadgroup -m 'not (proof or house)'

proof: .venv/.dev .venv/.servers
	SAFEPOINT_CRASH=proof $(VENV) -m pytest -n 8 --dist loadgroup -m 'proof or hypothesis'

proof-all: .venv/.dev .venv/.servers
	SAFEPOINT_CRASH=long $(VENV) -m pytest -n 6 --dist loadgroup

# Parts, so that `make -j 2 check` can do two at a time once .venv is there.
check: check-style check-types check-house build/.site

check-style: .venv/.dev
	$(VENV) -m ruff check .
	$(VENV) -m ruff format --check .

check-types: .venv/.dev
	$(VENV) -m mypy

check-house: .venv/.dev
	$(VENV) -m pytest -q -m house tests/parts tests/tools/test_cli.py

crash: .venv/.dev
	$(VENV) tests/testbed/evidence.py long

crash-all: .venv/.dev
	$(VENV) tests/testbed/evidence.py all

check-suites: .venv/.dev
	SAFEPOINT_SUITES=all $(if $(SUITES),SUITES=$(abspath $(SUITES))) $(VENV) -m pytest -q -rs tests/proof/test_suites.py
	SAFEPOINT_CRASH=long $(VENV) -m pytest -q -n 2 tests/proof/test_standard_templates.py

docs: build/.cli
	@$(MAKE) --no-print-directory build/.site
	@echo 'build/site/index.html (its search needs a server: python3 -m http.server -d build/site)'

bench: .venv/.bench
	$(VENV) benchmarks/peers.py --results benchmarks/results
	$(VENV) benchmarks/fast_steps.py --peers --rounds 2 --results benchmarks/results

bench-more: .venv/.bench .venv/.servers
	$(VENV) benchmarks/blocking.py
	$(VENV) benchmarks/throughput.py
	$(VENV) benchmarks/solver_cost.py
	$(VENV) benchmarks/ranks.py
	$(VENV) benchmarks/scale.py
	$(VENV) benchmarks/chances.py
	$(VENV) benchmarks/ledger.py
	$(VENV) benchmarks/state.py
	$(VENV) benchmarks/start.py
	$(VENV) benchmarks/in_c.py
	$(VENV) benchmarks/trace.py
	$(VENV) benchmarks/threads.py
	$(VENV) benchmarks/places.py
	$(VENV) benchmarks/check.py
	$(VENV) benchmarks/many.py
	$(VENV) benchmarks/tiers.py
	$(VENV) benchmarks/interval_sim.py

clean:
	rm -rf .venv build demo *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# What the pages are made from: a page that is as it was is not made again.
PACKAGE := $(shell find safepoint -name '*.py')
PAGES := mkdocs.yml CHANGELOG.md $(shell find docs benchmarks -name '*.md' -o -name '*.png') docs/site_links.py docs/site.css

build/.cli: .venv/.docs docs/write_cli.py $(PACKAGE)
	mkdir -p build
	$(VENV) docs/write_cli.py > build/cli.md.new || (rm -f build/cli.md.new; false)
	mv build/cli.md.new docs/cli.md
	touch $@

build/report-example.html: .venv/.docs docs/write_report.py $(wildcard safepoint/report/*.py)
	mkdir -p build
	$(VENV) docs/write_report.py $@.new
	mv $@.new $@

# Warnings are errors. (Not with --quiet: mkdocs does not count them then.)
build/.site: .venv/.docs build/report-example.html $(PAGES) $(PACKAGE)
	NO_MKDOCS_2_WARNING=1 $(VENV) -m mkdocs build
	touch $@

# A stamp is set when its step is done, so that an interrupted one is done again and a second call is quick.
# pip knows --group since 25.1.
.venv/.pip:
	$(PYTHON) -m venv .venv
	$(INSTALL) --upgrade 'pip>=25.1'
	touch $@

.venv/.demo: .venv/.pip pyproject.toml
	$(INSTALL) --editable '.[mpich]' --group demo
	touch $@

.venv/.dev: .venv/.pip pyproject.toml
	$(INSTALL) --editable '.[examples,mpich]' --group dev
	touch $@

# The S3 server of the tests, in an environment of its own: its boto3 and that of s3fs do not go together.
.venv/.servers: .venv/.pip
	$(PYTHON) -m venv .venv/servers
	PYTHONWARNINGS=ignore .venv/servers/bin/python -m pip install --quiet --no-compile --disable-pip-version-check 'moto[server]>=5'
	touch $@

.venv/.docs: .venv/.pip pyproject.toml
	$(INSTALL) --editable . --group docs
	touch $@

.venv/.bench: .venv/.dev
	for package in $(PEERS); do $(INSTALL) $$package || echo "left out: $$package"; done
	touch $@
