# Every target sets up what it needs. `make help` lists them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
STAMP := $(VENV)/.installed
PYTEST := $(PY) -m pytest
export PYTHONPATH := $(CURDIR)/operator:$(CURDIR)/lab:$(CURDIR)/dev

.PHONY: help setup toolchain demo demo-keep down chaos test lint docs docs-check types unit harm golden contract fuzz cluster e2e e2e-autoscaling e2e-measuring e2e-canary vllm contract-vllm contract-vllm-matrix e2e-vllm e2e-training training-methods accelerator-kit bench bench-scale soak mutants bench-tuner bench-tuner-short bench-ablations generate check-generated check-manifests lock sbom image chart bundle plugin wheel clean

help: ## list the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | sort | awk -F ':.*## ' '{printf "  %-16s %s\n", $$1, $$2}'

$(STAMP): pyproject.toml lab/pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or newer is needed; name one with: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' \
	  || { echo "Python's venv module is missing (Debian and Ubuntu: apt-get install python3-venv)" >&2; exit 2; }
	@echo "Installing pinned dependencies into $(VENV) (about a minute)"
	@test -x $(PY) || $(PYTHON) -m venv $(VENV)
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' -e './lab[emulator,sim]'
	@touch $@

setup: $(STAMP) ## virtual environment with pinned dependencies

# Pods see the tree as it is and may write nothing into it: without byte-code each of them compiles the operator anew.
toolchain: $(STAMP) ## build and cache the development cluster's programs (15 minutes the first time)
	@$(PY) -m devcluster build
	@$(PY) -m compileall -q operator lab/speculative_lab dev

demo: $(STAMP) ## the main job: cluster, operator, a model, a load that climbs and falls, a report
	@$(PY) -m demo $(ARGS)

demo-keep: $(STAMP) ## the same, and leave the cluster up
	@$(PY) -m demo --keep $(ARGS)

down: $(STAMP) ## end the cluster that demo-keep left; NAME=... if it was given one
	@$(PY) -m devcluster down --name $(or $(NAME),demo)

chaos: toolchain ## faults done to the operator while clients are served; writes docs/reliability.md (15 minutes)
	@$(PY) -m chaos $(ARGS)

test: lint types docs-check toolchain unit harm bench-tuner-short golden check-manifests ## everything that CI runs
	@$(MAKE) --no-print-directory -j 2 --output-sync=target contract cluster
	@$(MAKE) --no-print-directory e2e

lint: $(STAMP) ## ruff: style, imports, complexity
	@$(VENV)/bin/ruff check .
	@$(VENV)/bin/ruff format --check .

LINKS := at=$$($(PY) -m release address); SPECULATIVE_REPOSITORY=$$at SPECULATIVE_EDIT=$${at:+$$at/edit/main/docs/}

docs: $(STAMP) ## serve the pages of docs/ with search, on http://127.0.0.1:8000
	@$(LINKS) NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs serve

docs-check: $(STAMP) ## build the pages of docs/ into build/site; fail on a link or anchor that leads nowhere
	@$(LINKS) NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build --strict --site-dir build/site

types: $(STAMP) ## mypy, strict
	@$(VENV)/bin/mypy

unit: $(STAMP) ## pure logic, by values and by properties
	@$(PYTEST) -q -n auto --dist loadfile tests/unit

harm: $(STAMP) ## what must never happen, one test for each way in which serving or a neighbour could be harmed
	@$(PYTEST) -q -n auto --dist loadfile tests/harm

golden: $(STAMP) ## rendered manifests against tests/golden/expected, generated files against the code
	@$(PYTEST) -q tests/golden
	@$(MAKE) --no-print-directory check-generated

contract: toolchain ## schema constraints on a real API server, the emulator against recorded metrics
	@$(PYTEST) -q --durations 12 tests/contract

fuzz: toolchain ## 2,000 objects with any field at its borders and beyond, others each day, on a real API server (5 minutes)
	@export SPECULATIVE_FUZZ_OBJECTS=$${SPECULATIVE_FUZZ_OBJECTS:-2000} \
	  SPECULATIVE_FUZZ_SEED=$${SPECULATIVE_FUZZ_SEED:-$$(date +%Y%m%d)}; \
	  echo "SPECULATIVE_FUZZ_SEED=$$SPECULATIVE_FUZZ_SEED"; $(PYTEST) -q tests/contract/test_fuzz_objects.py

cluster: toolchain ## development cluster, process node, operator and chart on it
	@$(PYTEST) -q -n 3 --dist loadfile --durations 12 tests/cluster

e2e: toolchain ## a short whole loop: apply, serve, tune
	@$(PYTEST) -q -n 4 --dist loadfile --no-loadscope-reorder --durations 12 tests/e2e

e2e-autoscaling: toolchain ## Kubernetes' own autoscaler beside the tuner (5 minutes; with CYCLES=4 the load climbs four times: 12)
	@SPECULATIVE_AUTOSCALING_CYCLES=$(or $(CYCLES),1) $(PYTEST) -q -s tests/e2e/test_autoscaler.py

e2e-measuring: toolchain ## three speculators measured beside each other, and the best kept (20 minutes)
	@SPECULATIVE_MEASURE_ALL=1 $(PYTEST) -q -s tests/e2e/test_measuring.py

e2e-canary: toolchain ## canaries that are promoted and taken back, with the operator killed twenty times in each (half an hour)
	@SPECULATIVE_CANARY_ALL=1 $(PYTEST) -q -s tests/e2e/test_canary_decides.py

vllm: $(STAMP) ## the real engine on a CPU, into the cache (six gigabytes, about 4 minutes, once)
	@$(PY) -m realengine install

contract-vllm: vllm ## argument parser, scheduler classes, table file, skipping and emulator against the real engine (about an hour)
	@$(PYTEST) -q tests/vllm

contract-vllm-matrix: vllm ## the payload on other releases of vLLM: make contract-vllm-matrix ARGS="0.31.0" (10 minutes each)
	@$(PY) -m realengine.matrix $(ARGS)

accelerator-kit: $(STAMP) ## what an accelerator is measured with, without a network there; into build/accelerator-kit (5 minutes the first time)
	@$(PY) -m acceleratorkit build $(ARGS)

e2e-vllm: toolchain ## the operator with the real vLLM as pods; report in build/e2e-vllm (8 minutes, 25 the first time)
	@$(PY) -m realengine.e2e $(ARGS)

e2e-training: toolchain ## a speculator trained, tried and promoted with the real vLLM and library, on CPUs (15 minutes)
	@$(PY) -m realengine.e2e.train $(ARGS)

training-methods: vllm ## P-EAGLE and DFlash speculators trained and served with the real library and vLLM, on CPUs (half an hour)
	@$(PY) -m realengine.training --methods peagle dflash --prompts 200 $(ARGS)

bench: $(STAMP) ## decisions, renders and reconciles a second, without I/O; the last line is one JSON object
	@$(PY) -m bench

bench-scale: toolchain ## 100 objects with pods on a real API server; ARGS="--count 1000 --against REVISION" (5 minutes each)
	@$(PY) -m bench.scale $(ARGS)

soak: toolchain ## objects that come and go for MINUTES (20), and whether the operator's memory grows with them
	@$(PY) -m bench.scale --soak $(or $(MINUTES),20)

bench-tuner: $(STAMP) ## the tuner and its rivals in 200 worlds drawn at run time; the last line is one JSON object (half an hour)
	@OPENBLAS_NUM_THREADS=1 $(PY) -m bench.tuner $(ARGS)

bench-tuner-short: $(STAMP) ## the tuner alone in a few short worlds, always the same; fails where it is broken (a minute)
	@OPENBLAS_NUM_THREADS=1 $(PY) -m bench.tuner --short $(ARGS)

bench-ablations: $(STAMP) ## the tuner with each mechanism taken out in turn, in the same 200 worlds (an hour on two free cores)
	@OPENBLAS_NUM_THREADS=1 $(PY) -m bench.tuner.ablations $(ARGS)

mutants: $(STAMP) ## changes of the code that guards what serves, and whether tests notice (an hour): ARGS="tuner/guards --show"
	@$(PY) -m pip install --quiet --disable-pip-version-check -c constraints.txt -r dev/mutants/requirements.txt
	@$(PY) -m mutants $(ARGS)

RENDERED := $$($(PY) -m devcluster build 2>/dev/null | awk '$$1 == "helm" {print $$2}') template speculative-operator \
	  charts/speculative-operator --namespace speculative-system --set image.repository=speculative-operator

generate: toolchain ## write crds/, manifests/, RBAC, values schema and API reference from the code
	@$(PY) -m generate
	@$(PY) -m monitoring
	@$(RENDERED) | $(PY) -m generate --install -

check-generated: $(STAMP) ## fail when a generated file differs from the code
	@$(PY) -m generate --check
	@$(PY) -m monitoring --check

check-manifests: toolchain ## the same for manifests/install.yaml and the OLM bundle, which need Helm
	@$(RENDERED) | $(PY) -m generate --install - --check

lock: $(STAMP) ## requirements/: what the images install, by hash, within constraints.txt
	@$(PY) -m release lock

sbom: $(STAMP) ## bills of materials of the images (CycloneDX), into build/release
	@$(PY) -m release sbom

image: $(STAMP) ## images of operator and emulator on a base by digest, with provenance in build/release; needs Docker
	@$(PY) -m release image $(ARGS)

chart: $(STAMP) ## the chart as a package that names a registry's image: make chart ARGS="--registry REGISTRY/"
	@$(PY) -m release chart $(ARGS)

bundle: $(STAMP) ## the OLM bundle that names a registry's image, into build/release/olm: ARGS="--registry REGISTRY/"
	@$(PY) -m release bundle $(ARGS)

plugin: $(STAMP) ## the plug-in for krew and its manifest, into build/release: ARGS="--url FOLDER_OF_THE_RELEASE"
	@$(PY) -m release krew $(ARGS)

wheel: $(STAMP) ## the operator's wheel with the command line, as PyPI takes it, into build/release
	@$(PY) -m release wheel

clean: ## remove build output and the virtual environment (caches outside the tree stay)
	rm -rf build lab/build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
