# Every target calls one program. The first call prepares .venv; later calls do not notice it.
# Settings: CUDA=11.8 ARCH=arm64 STACK=pyg|glt|torch WITH="lightning wandb" APT="git" BUILD_APT="swig" BUILD_ENV="A=1 B=2" TRUST_PATHS=yes REQUIREMENTS=file RECIPE=mine.toml FROM=Dockerfile ENGINE=auto|embedded|docker|podman|apptainer GPU=v100,a100 DRIVER=450.80.02 TARGET=dgx2 MIRROR=sjtu|aliyun|nju|tuna|URL CHANNEL=pytorch|pypi|local WHEELS=folder EXTENSIONS=auto|wheels|source|none TOOLKIT=debian|pypi|image PYG_LIB=folder|git|URL CACHE=registry|folder|URL CACHE_TRUST=cosign.pub CACHE_KEY=cosign.key CACHE_CHECK=20 FLAVOUR=devel|jupyter SLIM=yes|all PACK=gzip|zstd|5.14 LOCKED=yes WALLED=yes WITHOUT_SECURITY=yes PLAN=yes KEEP_GOING=yes QUIET=yes VERBOSE=yes CHECK=yes PROVE=yes SECURITY=yes DISK=40GB AGAIN=yes KERNEL=3.10 COMPRESSION=gzip|zstd OVER=pyg.sif TO=registry.example/team KEY=cosign.key ALLOW_CPU_ONLY=yes ALLOW_EMULATED=yes ON=slurm PARTITION=cpu TIME=08:00:00 ACCOUNT=team CPUS=32 JOBS=8 LISTEN=127.0.0.1:8080 AT=https://site.example/ SAVE=pyg.sif SUITE=scatter,pyg UPSTREAM=folder ALL=yes

.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help image images packages sources sif publish render generate lock update list serve test test-unit test-engines test-all test-upstream faults fuzz mutations lint bench clean

STACK ?= pyg
# A setting that is misspelt would be left out in silence. What programs read from the environment may be given here too.
settings := $(sort $(shell sed -n 's/"[^"]*"//g; s/^# Settings: //p' $(firstword $(MAKEFILE_LIST)) | grep -o '[A-Z_]*=' | tr -d =))
given := $(foreach name,$(.VARIABLES),$(if $(filter command,$(origin $(name))),$(name)))
strange := $(filter-out $(settings) PYTHON CI ENGINES FAULTS FUZZ RACES HOME PATH TMPDIR SHELL DEBIAN_% WHEEL_FALLBACK CRATES_MIRROR GRAPHCRATE_% REGISTRY_% UV_% PIP_% SSL_% XDG_% SOURCE_DATE_EPOCH %_proxy %_PROXY MAKE%,$(given))
ifneq ($(strange),)
nearest := $(shell python3 -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1].upper(), sys.argv[2:], n=1, cutoff=0.5))' '$(firstword $(strange))' $(settings) 2>/dev/null)
$(error $(firstword $(strange)) is not a setting$(if $(nearest),; the nearest is $(nearest)). There are $(settings))
endif
# Goals are looked at before the first recipe: what stands outside of quotes would be one, after an image without it.
goals := $(shell sed -n 's/^.PHONY: //p' $(firstword $(MAKEFILE_LIST)))
quoted = '$(subst ','\'',$(1))'
unknown := $(filter-out $(goals) doctor.py .venv/%,$(MAKECMDGOALS))
ifneq ($(unknown),)
list := $(firstword $(filter WITH APT BUILD_APT BUILD_ENV,$(given)) $(foreach name,$(filter $(settings),$(given)),$(if $($(name)),,$(name))))
form := $(patsubst tar,oci-archive,$(filter sqsh docker rootfs oci-archive tar,$(firstword $(unknown))))
ifneq ($(form),)
$(error $(firstword $(unknown)) is no goal of make: make image, then ./build.py convert $(STACK) --to $(form))
endif
closest := $(shell python3 -c 'import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], n=1))' $(call quoted,$(firstword $(unknown))) $(goals) 2>/dev/null)
$(error $(firstword $(unknown)) is no goal of make$(if $(closest),; the nearest is: make $(closest),$(if $(list),: write $(list)="$(strip $($(list)) $(unknown))",. There are $(goals))))
endif
ifneq ($(filter command,$(origin PYTHON)),)
ifeq ($(shell command -v $(call quoted,$(PYTHON)) 2>/dev/null),)
$(error PYTHON=$(PYTHON) is no program: it is the Python that runs graphcrate itself. An image has that of its stack (make list); another takes a recipe with `python` (docs/recipes.md))
endif
endif
option = $(if $(2),--$(1) '$(subst ','\'',$(2))')
python := .venv/bin/python
# By make -C of another folder, which says itself where it is; what is printed has to work there.
away = $(if $(findstring w,$(firstword -$(MAKEFLAGS))),$(if $(filter $(realpath $(CURDIR)),$(realpath $(PWD))),,$(CURDIR)))
# what was typed, of which next steps are made
told = -X $(call quoted,typed=make $(if $(away),-C $(call quoted,$(away)) )$@ $(strip $(foreach name,$(given),$(call quoted,$(name)=$($(name))))))
# -E -s: what environment modules leave in PYTHONPATH is not for us
graphcrate = $(python) -E -s $(told) $(if $(away),$(call quoted,$(away)/build.py),build.py)
upkeep = $(python) -E -s $(told) -m upkeep
own = $(call option,with,$(WITH)) $(call option,requirements,$(REQUIREMENTS)) $(call option,apt,$(APT)) $(call option,build-apt,$(BUILD_APT)) $(call option,build-env,$(BUILD_ENV))
# Of the command line alone: environments of clusters have an ARCH of their own.
platform = $(if $(filter command,$(origin ARCH)),$(call option,platform,$(ARCH)))
sources = $(call option,cuda,$(CUDA)) $(platform) $(call option,channel,$(CHANNEL)) \
          $(call option,mirror,$(MIRROR)) $(call option,wheels,$(WHEELS)) \
          $(call option,extensions,$(EXTENSIONS)) $(call option,toolkit,$(TOOLKIT)) $(call option,pyg-lib,$(PYG_LIB))
# Of the command line alone: a CACHE of the environment may be anybody's.
shared = $(if $(filter command,$(origin CACHE)),$(foreach place,$(CACHE),$(call option,cache,$(place)))) \
         $(foreach key,$(CACHE_TRUST),$(call option,cache-trust,$(key))) $(call option,cache-key,$(CACHE_KEY)) $(call option,cache-check,$(CACHE_CHECK))
trusted = $(if $(filter-out no,$(TRUST_PATHS)),--trust-paths)
request = '$(or $(RECIPE),$(STACK))' $(sources) $(trusted)
# A recipe is written beside the file, or as RECIPE; what is made of it has other targets.
from = $(if $(filter command,$(origin FROM)),$(FROM))
ifneq ($(from),)
ifneq ($(MAKECMDGOALS),image)
$(error FROM is for make image: make image FROM='$(from)', which writes a recipe, then RECIPE=)
endif
endif
adopting = $(if $(from),recipe=$$($(graphcrate) adopt '$(from)' $(call option,output,$(RECIPE)) $(trusted) $(quiet)) && )
requested = $(if $(from),"$$recipe" $(sources) $(trusted),$(request))
# all of them where neither is given
named = $(if $(RECIPE)$(filter-out file,$(origin STACK)),'$(or $(RECIPE),$(STACK))')
locked = $(if $(LOCKED),--locked)
plan = $(if $(filter-out no,$(PLAN)),--plan)
quiet = $(if $(filter-out no,$(QUIET)),--quiet)
unfixed = $(if $(filter-out no,$(WITHOUT_SECURITY)),--without-security)
verbose = $(if $(filter-out no,$(VERBOSE)),--verbose)
walled = $(if $(filter-out no,$(WALLED)),--walled)
building = $(locked) $(walled) $(unfixed) $(if $(filter-out no,$(KEEP_GOING)),--keep-going) $(quiet) $(verbose)
# Of the command line alone: an environment may have a TIME or a PARTITION.
typed = $(if $(filter command,$(origin $(2))),$(call option,$(1),$($(2))))
node = $(call typed,on,ON) $(call typed,partition,PARTITION) $(call typed,time,TIME) $(call typed,account,ACCOUNT) $(call typed,cpus,CPUS)
sending = $(call option,to,$(TO)) $(call option,key,$(KEY)) $(if $(ALLOW_CPU_ONLY),--allow-cpu-only) $(if $(ALLOW_EMULATED),--allow-emulated)
machine = $(call option,gpu,$(GPU)) $(call option,driver,$(DRIVER)) $(call option,target,$(TARGET))

# the image that other forms are made of
stack = $(graphcrate) image $(request) $(shared) $(own) $(machine) $(call option,flavour,$(FLAVOUR)) $(call option,slim,$(SLIM)) $(building) $(node) --engine embedded

# Goals that build nothing take few settings; one that would do nothing there is refused.
takes_lock := CUDA ARCH STACK RECIPE CHANNEL MIRROR WHEELS EXTENSIONS TOOLKIT PYG_LIB TRUST_PATHS WITHOUT_SECURITY CHECK
takes_serve := LISTEN
idle = $(filter-out $(takes_$@),$(filter $(settings),$(if $(filter 1,$(words $(MAKECMDGOALS))),$(given))))
used = $(if $(idle),$(error $(firstword $(idle)) does nothing in make $@$(if $(takes_$@),$(comma) which takes $(takes_$@))))
comma := ,

help: ## show this
	@sed -n 's/^\([a-z-]*\): .*## \(.*\)/  make \1\t\2/p' Makefile | expand -t 22
	@sed -n 's/^# Settings: /  settings:     /p' Makefile

image: .venv/ready-run ## build an image and prove it by a training run: make image CUDA=11.8, make image FROM=Dockerfile
	@$(adopting)$(graphcrate) image $(requested) $(shared) $(own) $(machine) $(call option,engine,$(ENGINE)) $(call option,flavour,$(FLAVOUR)) $(call option,slim,$(SLIM)) $(call option,pack,$(PACK)) $(building) $(node) $(call option,at,$(AT)) $(call option,save,$(SAVE)) $(plan)

images: .venv/ready-run ## build, check and test the image of every committed lock; goes on where it stopped: make images DISK=60GB, make images ON=slurm
	@$(if $(plan),$(error PLAN is for one image: make image CUDA=11.8 PLAN=yes))$(graphcrate) matrix $(if $(filter-out file,$(origin STACK)),'$(STACK)') $(call option,cuda,$(CUDA)) $(platform) $(call option,disk,$(DISK)) $(if $(AGAIN),--again) $(shared) $(node) $(call typed,jobs,JOBS) $(quiet)

packages: .venv/ready-run ## try the packages of docs/packages.md, each in an image of its own; goes on where it stopped: make packages DISK=60GB
	@$(python) -m tools.wanted_packages $(call option,disk,$(DISK)) $(if $(AGAIN),--again)

sources: .venv/ready-run ## compile the packages of docs/sources.md twice each, without an image; goes on where it stopped: make sources AGAIN=yes
	@$(python) -m tools.source_packages $(if $(AGAIN),--again)

packed = $(call option,pack,$(or $(COMPRESSION),$(KERNEL),auto))
# What is made of the image is looked at before it is built.
strange_form = $(if $(filter-out gzip zstd,$(COMPRESSION)),$(error COMPRESSION is gzip or zstd, and not $(COMPRESSION)))

sif: .venv/ready-run ## the same image for Singularity and Apptainer: make sif CUDA=11.8 KERNEL=3.10; OVER=pyg.sif: what it has over that one
	@$(strange_form)$(if $(plan),$(stack) $(packed) --plan,$(if $(OVER),base=$$($(graphcrate) inspect '$(OVER)') && )image=$$($(stack) $(packed)) && \
	$(graphcrate) convert "$$image" $(if $(OVER),--to delta,--to sif) $(call option,over,$(OVER)) --force --link '$(or $(notdir $(basename $(RECIPE))),$(STACK))$(if $(OVER),.delta.sqsh,.sif)' $(call option,kernel,$(KERNEL)) $(call option,compression,$(COMPRESSION)) $(node) $(quiet))

publish: .venv/ready-run ## build, prove and publish: make publish CUDA=11.8 TO=registry.example/team KEY=cosign.key
	@$(graphcrate) publish '$(or $(RECIPE),$(STACK))' $(call option,cuda,$(CUDA)) $(platform) $(trusted) --plan $(sending)
	@$(if $(plan),$(stack) --plan,image=$$($(stack)) && \
	$(graphcrate) publish "$$image" $(sending))

render: .venv/ready-run ## write the Dockerfiles and Singularity definitions under images/
	@$(used)$(graphcrate) render

generate: .venv/ready-run ## write the tables of docs/ and the pages of dist/docs from the code
	@$(python) -m tools.generate

lock: .venv/ready-run ## resolve a variant again and write its lock under images/; CHECK=yes: are all locked files still there?
	@$(used)$(if $(CHECK),$(upkeep) lock $(named) $(sources) --check,$(graphcrate) lock $(request)) $(unfixed)

update: .venv/ready-run ## take new releases of torch and PyG: measure, lock, render, and say what changed; CHECK=yes: is anything new? (20) PROVE=yes: build and test it too; SECURITY=yes: only what has known vulnerabilities
	@$(upkeep) update $(named) $(call option,mirror,$(MIRROR)) $(if $(filter-out no,$(CHECK)),--check) $(if $(filter-out no,$(PROVE)),--prove) $(if $(filter-out no,$(SECURITY)),--security) $(call option,disk,$(DISK)) $(quiet)

list: .venv/ready-run ## show recipes and their variants
	@$(used)$(graphcrate) list

serve: .venv/ready-serve ## open the page that plans and builds images for a site: make serve LISTEN=127.0.0.1:8080
	@$(used)$(graphcrate) serve $(call typed,listen,LISTEN)

# A file's tests stay on one worker and share its fixtures; files begin in their order, those with images first.
pytest = $(python) -m pytest -n 2 --dist loadfile --no-loadscope-reorder
# They wait for daemons, jobs and limits of time for half of their time. All that is slow is there.
pytest_engines = $(pytest) -n 3 -p tests.processor tests/engines

ifneq ($(filter test,$(MAKECMDGOALS)),)
$(info make test: lint, unit tests, one real image, and the engines that are here. Next: make test-engines installs Docker, Podman,)
$(info Apptainer, a registry and Slurm and tries the image with them (35 minutes); make test-all compiles whole stacks as well.)
endif
test: .venv/ready-dev ## lint, unit tests and one real image: about seven minutes
	@$(pytest) -m 'not slow and not weekly and not faults'

test-unit: .venv/ready-dev ## the unit tests alone, which start no program: about a minute
	@$(pytest) tests/unit packages

test-engines: .venv/ready-dev ## real Docker, Podman, Apptainer, registry and Slurm, installed as root: 35 minutes
	@$(python) -m tests.engines.install
	@ENGINES=prepared $(pytest_engines) --durations=50 --durations-min=10 -m '(slow or installed) and not weekly and not faults'

test-all: test test-engines ## all of it, and what takes hours: whole stacks compiled, tutorials over several nodes
	@ENGINES=prepared $(pytest) tests/engines -m weekly

test-upstream: .venv/ready-run ## the tests of PyG and its extensions, by their repositories, inside an image; goes on where it stopped: make test-upstream CUDA=11.8 SUITE=scatter
	@$(python) $(told) -m tools.upstream_suites $(request) $(own) $(machine) $(call option,flavour,$(FLAVOUR)) $(call option,slim,$(SLIM)) $(call option,suite,$(SUITE)) $(call option,upstream,$(UPSTREAM)) $(if $(AGAIN),--again)

# Rows are recorded while they run; the page is written when all of them have passed.
faults: .venv/ready-dev ## kill, fill, cut and damage small builds; writes dist/docs/faults.md: ten minutes, as root; FAULTS=all: hours
	@records=$$(mktemp -d) && trap 'rm -rf "$$records"' EXIT && \
	FAULTS='$(FAULTS)' FAULTS_RECORDS="$$records" $(pytest) --dist worksteal -m faults tests/faults && $(python) -m tests.faults.page "$$records"

fuzz: .venv/ready-dev ## read mutated wheels, packages, locks, images, answers and what people type: FUZZ of each (20000); race what is shared: RACES seconds of each (10); try properties with 1000 new examples of each
	@FUZZ='$(or $(FUZZ),20000)' RACES='$(or $(RACES),10)' $(python) -m pytest -n 2 -m fuzz tests/unit
	@$(python) -m pytest -n 2 -m hypothesis --hypothesis-profile explore tests/unit packages

mutations: .venv/ready-dev ## break the code on purpose, a line at a time, and see that the tests notice: some six minutes
	@$(python) -m tools.mutations

lint: .venv/ready-dev ## ruff, mypy; hadolint, shellcheck, zizmor and actionlint over what is rendered, scripts and workflows
	@$(python) -m ruff check . && $(python) -m ruff format --check . && $(python) -m mypy
	@$(python) -m pytest -q -n 2 tests/lint/test_rendered.py tests/lint/test_workflows.py

bench: .venv/ready-run ## measure the main job; writes docs/performance.md
	@$(python) bench/main_job.py

# What a node proved of an image is asked for by publish, and a machine with a GPU may be hours away.
proofs := dist/[^/]*/[^/]*/passes/.*\|dist/trials/.*
clean: ## remove images and the project's environment; proofs of nodes stay unless ALL=yes (and the cache of wheels and layers)
	@du -sh $(wildcard dist .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis) | sed 's/^/removing /' >&2
	@rm -rf .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis $(if $(filter-out no,$(ALL)),dist)
	@if [ -d dist ]; then find dist ! -type d ! -regex '$(proofs)' -delete; find dist -depth -type d -empty -delete; fi
	@if [ -d dist ]; then echo 'kept: proofs in dist/ (make clean ALL=yes removes them)' >&2; fi

doctor.py: .venv/ready-run $(wildcard doctor/*) # one file to copy to a node
	@$(python) -m tools.doctor_file

.venv/ready-run: requirements.txt $(wildcard packages/*/pyproject.toml) $(python)
	@tools/prepare run

.venv/ready-serve: requirements-serve.txt $(wildcard packages/*/pyproject.toml) $(python)
	@tools/prepare serve

.venv/ready-dev: requirements-dev.txt $(wildcard packages/*/pyproject.toml) $(python)
	@tools/prepare dev

# No recipe: where the interpreter is gone, what depends on it is made again.
$(python): ;
