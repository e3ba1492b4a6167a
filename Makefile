# The two main commands are `make up` and `make test`. Each sets up what it needs; `make help` lists all commands.
PYTHON ?= python3
STACK ?= local
# What a rehearsal runs on: quick (simulated), cluster (a real Kubernetes; minutes, and Go to build it once), or pods
# (also real nodes and Ray; root on Linux).
DEPTH ?= quick
VENV := .venv/bin/python
# With this variable, which container images set, every process compiles torch and Ray again, for seconds.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup setup-infra setup-dev up down preview drift rehearse rehearse-all test test-kubernetes bench-overhead bench-start test-faults test-pods test-slurm kubernetes test-matrix simulate-hunt bench-gpu changes accept mutations outdated facts golden release-state check format schema docs lock wheel clean

help: ## list all commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  make %-15s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

up: setup ## bring STACK up; if it is local, benchmark it and train on it; SET="nodes.count=3" changes settings first; PREFLIGHT=skip
	@$(VENV) -m tools.stack up --stack "$(STACK)" --set "$(SET)" $(if $(filter skip,$(PREFLIGHT)),--skip-preflight)

preview: setup ## show what `make up` would change in STACK
	@$(VENV) -m tools.stack preview --stack "$(STACK)"

drift: setup ## show what others changed in STACK since the last up, who that may be, and what `make up` would do about it
	@$(VENV) -m tools.drift --stack "$(STACK)"

down: setup ## destroy STACK
	@$(VENV) -m tools.stack down --stack "$(STACK)"

rehearse: setup-$(if $(filter quick,$(DEPTH)),infra,dev) ## rehearse STACK on simulated clouds; DEPTH=cluster adds a real Kubernetes, DEPTH=pods real Ray; ARGS="--change nodes.max=8"
	@$(VENV) -m rehearsal --stack "$(STACK)" --depth "$(DEPTH)" $(ARGS)

test-faults: setup-dev ## inject every fault at every step of up and destroy, on simulated clouds (40 minutes); ARGS="--sample 20"
	@$(VENV) -m rehearsal.faults $(ARGS)

rehearse-all: setup-$(if $(filter quick,$(DEPTH)),infra,dev) ## rehearse every cloud stack file; ARGS="--before origin/main" upgrades from that version
	@$(VENV) -m rehearsal --stack all --depth "$(DEPTH)" $(ARGS)

test: setup-dev ## run the tests of unit, components, rehearsal and workloads; PYTEST="tests/unit -x" runs some of them
	@$(VENV) -m tools.run_tests $(PYTEST)

test-kubernetes: setup-dev ## run the tests on a real API server, scheduler, KubeRay and Kueue (built with Go, once)
	@$(VENV) -m tools.run_tests kubernetes $(PYTEST)

test-pods: setup-dev ## run the tests of real Ray in real pods, on this machine (Linux, root; 20 minutes) or the cluster of KUBECONFIG
	@$(VENV) -m tools.run_tests pods $(PYTEST)

test-slurm: setup-dev ## run the tests of Ray on a real Slurm with three nodes, on this machine (Linux, root; 5 to 14 minutes)
	@$(VENV) -m tools.run_tests slurm $(PYTEST)

kubernetes: setup-dev ## run a real Kubernetes with KubeRay on this machine until Ctrl-C (Linux, root); ARGS="--nodes 1 --kueue"
	@$(VENV) -m tools.kubernetes.standing $(ARGS)

test-matrix: setup-infra ## rehearse every combination of machine, capacity, fabric and more; each is brought up or refused
	@$(VENV) -m rehearsal.matrix $(ARGS)

simulate-hunt: setup-dev ## measure cost and mistakes of `bench hunt` on simulated fleets; ARGS="--nodes 232 --bad 5 --seeds 1000 --max-tests 55"
	@$(VENV) -m tests.workloads.nccl.hunt_simulator $(ARGS)

bench-gpu: setup-dev ## compare ConvNeXt training with timm's on this machine, alternating; ARGS="--batch 256"
	@$(VENV) -m tests.workloads.train.bench_gpu $(ARGS)

changes: setup-infra ## apply the changes that people make to stacks whose nodes run, and write the table of docs/changes.md (5 minutes)
	@$(VENV) -m rehearsal.changes $(ARGS)

accept: setup-dev ## make a document of `rdma-ray evidence` that a user sent part of the rehearsal's facts; FILE=…
	@$(VENV) -m rehearsal.accept "$(FILE)"

mutations: setup-infra ## take out and change every input of STACK, one at a time, and show what notices
	@$(VENV) -m rehearsal.mutations "$(STACK)"

outdated: setup-dev ## print, for every pin, the newest release that the package registries have (docs/pins.md)
	@$(VENV) -m tools.outdated

facts: setup-dev ## write facts.json of both simulated clouds; ARGS="--providers FOLDER" has the providers' own schemas
	@$(VENV) -m tools.facts.write $(ARGS)

bench-overhead: setup-dev ## compare the benchmark's loop with a bare torch.distributed loop, alternating (minutes); ARGS="--pairs 50"
	@$(VENV) -m tests.workloads.nccl.overhead $(ARGS)

bench-start: setup-dev ## compare the start of jobs on the local stack, which must be up, with torchrun's (minutes)
	@$(VENV) -m tests.workloads.start_up $(ARGS)

golden: setup-dev ## update the reviewed lists of resources (tests/rehearsal/golden) and the texts about drift
	@UPDATE_GOLDENS=1 $(VENV) -m pytest -q $(addprefix tests/rehearsal/test_,cloud_stacks.py settings.py drift.py) -k golden_list

release-state: setup-dev ## write the state of every cloud stack as this version leaves it (tests/rehearsal/releases), for tests of upgrades
	@$(VENV) -m tests.rehearsal.release_states

check: setup-dev ## run formatter, linter, strict types, and the check of import circles and file sizes
	@$(VENV) -m ruff format --check .
	@$(VENV) -m ruff check .
	@$(VENV) -m tools.structure
	@$(VENV) -m mypy

format: setup-dev ## format, and fix what the linter can fix
	@$(VENV) -m ruff check --fix .
	@$(VENV) -m ruff format .

schema: setup-dev ## generate Pulumi.yaml's config section and the editors' JSON Schema from the settings
	@$(VENV) -m infra.settings.schema

docs: setup-dev ## write what the code determines of docs: settings.md, messages.md, tables of monitoring.md, dashboards
	@$(VENV) -m tests.unit.pages

setup: ## install the Python environment and the engine that `make up` needs
	@$(PYTHON) tools/setup.py run

setup-infra: ## install them without torch and Ray, for `pulumi up` of cloud stacks and for rehearsals
	@$(PYTHON) tools/setup.py infra

setup-dev:
	@$(PYTHON) tools/setup.py dev
	@$(VENV) -m tests.chromium
	@$(VENV) -m tests.prometheus

lock: setup-dev ## compile the hashed requirements from pyproject.toml
	@$(VENV) tools/setup.py lock

wheel: setup-dev ## build the package that `pip install` takes, in dist/
	@$(VENV) -m uv build --quiet --wheel --no-build-isolation --python $(VENV) --out-dir dist

clean: ## remove what setup and runs created in this clone, except the stacks' state
	rm -rf .venv .tools results dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
