# Cellar: smart storage for PostgreSQL. `make` lists the targets.
#
# PG_CONFIG=/path/to/pg_config selects the Postgres to build for; the default is the newest one with server headers.

.PHONY: help build install check test test-matrix soak dev dev-stop demo demo-stop demo-remove bench bench-report

help:
	@echo 'make demo          run TPC-H (SF=1) on a cell: Smart Scan off, on, and on compressed tables'
	@echo 'make demo-stop     stop the demo, keep its data (demo-remove deletes the data too)'
	@echo 'make dev           build the working tree, start a cell and Postgres in .dev, open psql; stop both on exit'
	@echo 'make dev-stop      stop what make dev left running (KEEP=1)'
	@echo 'make check         format, lint, documentation, unit tests, extension tests: some minutes'
	@echo 'make test          all tests (STAGES="..." selects stages, LONG=1 runs random tests longer): half an hour'
	@echo 'make test-matrix   tests on PostgreSQL 15 to 19 (VERSIONS="16 18" and STAGES="..." select some): hours'
	@echo 'make soak          kill processes and fill disks under load (HOURS=... MINUTES=... SEED=..., default 10 minutes)'
	@echo 'make bench         the benchmarks of docs/benchmarks.md (PARTS="..." selects parts)'
	@echo 'make bench-report  write the tables and plots of docs/benchmarks.md from bench/history'
	@echo 'make build         build the binary, the client library and the extension'
	@echo 'make install       install the extension into Postgres; cellar, man pages and systemd unit into PREFIX=/usr/local'
	@echo
	@echo 'PG_CONFIG=/path/to/pg_config selects the Postgres. Missing packages are installed with apt-get.'

build:
	@scripts/install-deps.sh
	@scripts/build.sh

install:
	@scripts/install-deps.sh
	@scripts/build.sh install

check:
	@scripts/install-deps.sh
	@scripts/test.sh check

test:
	@scripts/install-deps.sh
	@scripts/test.sh $(STAGES)

test-matrix:
	@scripts/install-deps.sh matrix
	@STAGES="$(STAGES)" scripts/test-matrix.sh $(VERSIONS)

soak:
	@scripts/install-deps.sh
	@scripts/build.sh extension
	@tests/soak/run.sh $(HOURS:%=--hours %) $(MINUTES:%=--minutes %) $(SEED:%=--seed %)

dev:
	@scripts/install-deps.sh
	@scripts/dev.sh

dev-stop:
	@scripts/dev.sh stop

demo:
	@scripts/demo.sh

demo-stop:
	@scripts/demo.sh stop

demo-remove:
	@scripts/demo.sh remove

bench:
	@scripts/install-deps.sh bench
	@bench/run.sh $(PARTS)

bench-report:
	@python3 bench/history.py report
