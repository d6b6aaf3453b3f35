# The thin layer for people; CMake does the work. `make help` lists the targets.
PRESET ?= release
PREFIX ?= /usr/local
JOBS   ?= $(shell nproc)

.DEFAULT_GOAL := build

build: ## compile; leaves build/plsh
	@test -f build/build.ninja || cmake --preset $(PRESET)
	cmake --build build -j $(JOBS)

test: build ## run the test suite
	ctest --test-dir build --output-on-failure -j $(JOBS)

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/\1\t\2/p' Makefile | expand -t 14

.PHONY: build test help
