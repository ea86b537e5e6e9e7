# Each target sets up what it needs, inside .venv; nothing is installed anywhere else, but for
# Java, Slurm, an ssh server and Chromium when root runs the tests on a Debian without them.

SHELL := bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup demo check test java slurm ssh chromium lint bench clean

export PIP_DISABLE_PIP_VERSION_CHECK := 1
# Else each of the many processes of the tests would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv
INSTALLED := $(VENV)/.installed
PY := $(VENV)/bin/python
# Which interpreter makes the environment; PYTHON=/path/to/python puts another one first.
CANDIDATES := $(PYTHON) python3.11 python3 python3.12 python3.13 python3.14
USABLE := import ensurepip, sys, venv; sys.exit(sys.version_info < (3, 11))

JAVA := openjdk-17-jre-headless
# An older Spark for some tests, in a folder that only they look into.
SPARK35 := $(VENV)/spark-3.5/.installed

SLURM := slurmctld slurmd slurm-client munge
SSH := openssh-server rsync
# Launchers of MPI for some tests, each in a folder of its own.
MPI := $(VENV)/openmpi/.installed $(VENV)/mpich/.installed

UNIT := tests/unit tests/architecture
# Git keeps no empty folders, and pytest fails where it finds no test.
HAS_TESTS = $(shell find $(1) -name 'test_*.py' 2>/dev/null)
REAL := $(strip $(foreach tier,tests/clusters tests/processes,$(if $(call HAS_TESTS,$(tier)),$(tier))))
# These start processes of their own, which often wait for each other. The longest files come first.
AT_ONCE := 2

help: ## show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-7s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(INSTALLED) ## make .venv with everything that the other targets need

$(INSTALLED): pyproject.toml constraints.txt
	@$(PY) -m pip --version >/dev/null 2>&1 || { \
		for python in $(CANDIDATES); do \
			if "$$python" -c '$(USABLE)' 2>/dev/null; then break; fi; python=; \
		done; \
		if [ -z "$$python" ]; then \
			echo 'error: no Python 3.11 or newer with venv found; install one, or name it: make setup PYTHON=/path/to/python3.11' >&2; \
			exit 1; \
		fi; \
		echo "Making $(VENV) with $$("$$python" --version)"; \
		"$$python" -m venv --clear $(VENV); \
	}
	@echo 'Installing into $(VENV); this takes a few minutes the first time'
	@$(PY) -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $@

demo: setup ## generate a million clicks, train DeepFM on them with servers, predict, export
	$(PY) -m flambeau demo

lint: setup ## ruff and mypy
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

check: lint ## lint, types and the fast tests: what to run while working
	$(PY) -m pytest -n auto --dist loadfile $(UNIT)

$(SPARK35): $(INSTALLED) tests/clusters/spark-3.5.txt
	@echo 'Installing Spark 3.5 into $(@D)'
	@rm -rf $(@D)
	@$(PY) -m pip install --quiet --no-deps --target $(@D) -r tests/clusters/spark-3.5.txt
	@touch $@

$(MPI): $(INSTALLED) tests/clusters/mpi.txt
	@echo 'Installing $(notdir $(@D)) into $(@D)'
	@rm -rf $(@D)
	@$(PY) -m pip install --quiet --no-deps --prefix $(@D) $$(grep '^$(notdir $(@D))==' tests/clusters/mpi.txt)
	@touch $@

slurm:
	@command -v slurmctld >/dev/null || [ -x /usr/sbin/slurmctld ] || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo 'Installing Slurm for the tests of launchers' && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $(SLURM) >/dev/null; \
	} || echo 'No Slurm, so no tests of it; to get it: apt-get install $(SLURM)'

ssh:
	@{ command -v sshd >/dev/null || [ -x /usr/sbin/sshd ]; } && command -v rsync >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo 'Installing an ssh server and rsync for the tests of ssh hosts' && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $(SSH) >/dev/null; \
	} || echo 'No ssh server or no rsync, so no tests of them; to get them: apt-get install $(SSH)'

chromium:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo 'Installing Chromium for the tests of pages' && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends chromium >/dev/null; \
	} || echo 'No Chromium, so no tests of pages in a browser; to get it: apt-get install chromium'

java:
	@[ -x "$${JAVA_HOME:-/none}/bin/java" ] || command -v java >/dev/null || { \
		[ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
		echo 'Installing Java for the tests of Spark' && apt-get -qq update && \
		DEBIAN_FRONTEND=noninteractive apt-get -qq install --no-install-recommends $(JAVA) >/dev/null; \
	} || echo 'No Java, so no tests of Spark; to get it: apt-get install $(JAVA)'

test: lint java slurm ssh chromium $(SPARK35) $(MPI) ## lint, then all tests: the fast ones first, then those that start processes
	$(PY) -m pytest -n auto --dist loadfile $(UNIT)
	$(if $(REAL),$(PY) -m pytest -n $(AT_ONCE) --dist loadfile --no-loadscope-reorder $(REAL) || { \
		[ $$? = 1 ] && echo 'Once more without others beside: what failed' && \
		$(PY) -m pytest --last-failed --last-failed-no-failures none $(REAL); \
	})

# A benchmark prints what it likes; its lines of JSON are the measurements that are kept.
bench: setup ## run every benchmark; measurements go to benchmarks/results.jsonl
	@: > benchmarks/results.jsonl; failed=; \
	for script in $$(grep -l '__main__' benchmarks/*.py); do \
		echo "== $$script"; \
		$(PY) "$$script" \
			| awk '{ print; fflush() } /^\{/ { print >> "benchmarks/results.jsonl" }' \
			|| failed+=" $$script"; \
	done; \
	if [ -n "$$failed" ]; then echo "error: failed:$$failed" >&2; exit 1; fi

clean: ## remove the environment, caches and build output (not runs/)
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis build dist
	find src tests benchmarks examples -name __pycache__ -type d -prune -exec rm -rf {} +
