# The thin layer for people; CMake and ctest do the work. `make help` lists the targets.
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)

.DEFAULT_GOAL := build
.NOTPARALLEL:

# Ninja where it is installed, but for a folder that was begun without it.
configure = cmake -S . -B build $(if $(wildcard build/CMakeCache.txt),,$(if \
    $(shell command -v ninja 2>/dev/null),-G Ninja))

build: build/CMakeCache.txt ## compile the library and the program; leaves build/plsh
	@cmake --build build -j $(JOBS)

build/CMakeCache.txt:
	@$(configure)

run: dependencies-run build ## the quick figures: tables here, plots in build/run; MODEL=file: a model instead
	@$(if $(MODEL),scripts/run-model "$(MODEL)",scripts/run)

test: dependencies-test ## the whole test suite; warnings of the compiler are errors
	@$(configure) -DPLSH_BUILD_TESTS=ON -DPLSH_WERROR=ON >/dev/null
	@cmake --build build -j $(JOBS)
	@ctest --test-dir build --output-on-failure -j $(JOBS)
	@scripts/test-python

bench: build ## speed and error of the methods side by side, on this machine
	@build/plsh bench --causal --dim 64,128

sanitize: dependencies-clang ## the test suite under the address, undefined behaviour and thread sanitizers
	@scripts/test-preset sanitize
	@scripts/test-preset thread

clang: dependencies-clang ## the test suite, compiled by clang
	@scripts/test-preset clang

lint: dependencies-lint build ## format, static analysis, shell scripts, the rules of the house
	@scripts/lint

format: ## format every C file
	@git ls-files -co --exclude-standard '*.c' '*.h' | xargs clang-format -i

experiments: dependencies-experiments build ## repeat every experiment of the paper (takes long)
	@for run in experiments/*/run; do echo "== $$run"; "$$run" || exit 1; done

web: dependencies-web ## the page for browsers, build-wasm/plsh.html: the library in WebAssembly
	@web/sources.sh build-wasm/sources
	@cmake --preset wasm >/dev/null
	@cmake --build --preset wasm -j $(JOBS)

install: build ## install under PREFIX (default /usr/local)
	@cmake --install build --prefix "$(PREFIX)"

clean: ## remove everything that was built
	@rm -rf build build-*

# The packages of one target; `make dependencies`: of all.
dependencies:
	@scripts/dependencies.sh

dependencies-%:
	@scripts/dependencies.sh $*

help: ## this list
	@sed -n 's/^\([a-z]*\):[^#]*## \(.*\)/  make \1|\2/p' Makefile | column -t -s '|'

.PHONY: build run test bench sanitize clang lint format experiments web install clean dependencies help
