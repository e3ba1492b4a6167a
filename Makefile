# Two commands matter: `make up` and `make test`. Each sets up what it needs; `make help` lists the rest.
PYTHON ?= python3
STACK ?= local
# How much of a rehearsal is real: quick; cluster with a real Kubernetes, which takes minutes and needs Go once; pods with
# real nodes and Ray as well, which needs root on Linux.
DEPTH ?= quick
VENV := .venv/bin/python
# Container images like to set it; then every process compiles torch and Ray anew, which takes seconds each time.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-infra setup-dev up down preview rehearse rehearse-all test test-kubernetes bench-overhead test-faults test-pods kubernetes test-matrix simulate-hunt bench-gpu mutations golden check format schema lock clean

help: ## list the commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: setup ## bring STACK up (local), benchmark it, train on it; SET="nodes.count=3" changes settings first
	@$(VENV) -m tools.stack up --stack "$(STACK)" --set "$(SET)"

preview: setup ## show what `make up` would change in STACK
	@$(VENV) -m tools.stack preview --stack "$(STACK)"

down: setup ## destroy STACK
	@$(VENV) -m tools.stack down --stack "$(STACK)"

rehearse: setup-$(if $(filter quick,$(DEPTH)),infra,dev) ## rehearse STACK on simulated clouds; DEPTH=cluster with real Kubernetes, DEPTH=pods with real Ray; ARGS="--change nodes.max=8"
	@$(VENV) -m rehearsal --stack "$(STACK)" --depth "$(DEPTH)" $(ARGS)

test-faults: setup-dev ## every fault at every step of up and destroy, simulated (40 minutes); ARGS="--sample 20" and more
	@$(VENV) -m rehearsal.faults $(ARGS)

rehearse-all: setup-$(if $(filter quick,$(DEPTH)),infra,dev) ## rehearse every cloud stack file; ARGS="--before origin/main" starts from that version
	@$(VENV) -m rehearsal.all_stacks --depth "$(DEPTH)" $(ARGS)

test: setup-dev ## run the tests: unit, components, rehearsal, workloads; PYTEST="tests/unit -x" runs some of them
	@$(VENV) -m tools.run_tests $(PYTEST)

test-kubernetes: setup-dev ## run the tests on a real API server, scheduler, KubeRay and Kueue (built once, by Go)
	@$(VENV) -m tools.kubernetes.tier $(PYTEST)

test-pods: setup-dev ## real Ray in real pods, on a Kubernetes of this machine's own (Linux, root; 10 minutes)
	@$(VENV) -m pytest tests/pods $(PYTEST)

kubernetes: setup-dev ## a real Kubernetes of this machine's own with KubeRay, until Ctrl-C (Linux, root); ARGS="--nodes 1 --kueue"
	@$(VENV) -m tools.kubernetes.standing $(ARGS)

test-matrix: setup-infra ## every combination of machine, capacity, fabric … goes up in a rehearsal or is refused
	@$(VENV) -m rehearsal.matrix $(ARGS)

simulate-hunt: setup-dev ## cost and mistakes of `bench hunt` on simulated fleets; ARGS="--nodes 232 --bad 5 --seeds 1000 --max-tests 55"
	@$(VENV) -m tests.workloads.hunt_simulator $(ARGS)

bench-gpu: setup-dev ## ConvNeXt training on this machine: ours against timm's, by turns; ARGS="--batch 256" and more
	@$(VENV) -m tools.bench_gpu $(ARGS)

mutations: setup-infra ## take every input of STACK out, one at a time, and show who notices
	@$(VENV) -m rehearsal.mutations "$(STACK)"

bench-overhead: setup-dev ## the measuring loop beside a bare torch.distributed loop, alternated (minutes); ARGS="--pairs 50"
	@$(VENV) -m tools.overhead $(ARGS)

golden: setup-dev ## write the reviewed lists of resources anew (tests/rehearsal/golden)
	@UPDATE_GOLDENS=1 $(VENV) -m pytest -q tests/rehearsal/test_cloud_stacks.py -k reviewed

check: setup-dev ## formatter, linter, structure (import circles, file sizes) and strict types
	@$(VENV) -m ruff format --check .
	@$(VENV) -m ruff check .
	@$(VENV) -m tools.structure --report
	@$(VENV) -m mypy

format: setup-dev ## format and fix what can be fixed by itself
	@$(VENV) -m ruff check --fix .
	@$(VENV) -m ruff format .

schema: setup-dev ## write Pulumi.yaml's config section and the editors' JSON Schema from infra/settings.py
	@$(VENV) -m infra.config_schema --write

setup: ## the Python environment and the engine that `make up` needs
	@$(PYTHON) tools/setup.py run

setup-infra: ## the same without torch and Ray: enough for `pulumi up` of cloud stacks and for rehearsals
	@$(PYTHON) tools/setup.py infra

setup-dev:
	@$(PYTHON) tools/setup.py dev
	@$(VENV) -m tools.browser

lock: setup-dev ## compile the hashed requirements from pyproject.toml
	@$(VENV) -m tools.lock

clean: ## remove what setup and runs made in this clone (not the stacks' state)
	rm -rf .venv .tools results .mypy_cache .ruff_cache .pytest_cache .hypothesis
