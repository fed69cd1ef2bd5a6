# Cellar: smart storage for PostgreSQL. `make` lists what there is to make.
#
# PG_CONFIG=/path/to/pg_config chooses the Postgres to build for; without it, the newest one that has server headers.

.PHONY: help build test demo demo-stop demo-remove bench install

help:
	@echo 'make demo         a cell, a stock Postgres on it, TPC-H (SF=1): Smart Scan off and on'
	@echo 'make demo-stop    stop what the demo started (demo-remove also deletes its data)'
	@echo 'make test         build and test everything (STAGES="…" for some of it, LONG=1 for more rounds)'
	@echo 'make bench        the benchmarks of docs/benchmarks.md'
	@echo 'make build        the binary, the client library and the extension'
	@echo 'make install      the extension into Postgres, cellar into PREFIX=/usr/local'
	@echo
	@echo 'All of them honour PG_CONFIG=/path/to/pg_config and install with apt-get what is missing.'

build:
	@scripts/install-deps.sh
	@scripts/build.sh

install:
	@scripts/install-deps.sh
	@scripts/build.sh install

test:
	@scripts/install-deps.sh
	@scripts/test.sh $(STAGES)

demo:
	@scripts/demo.sh

demo-stop:
	@scripts/demo.sh stop

demo-remove:
	@scripts/demo.sh remove

bench:
	@scripts/install-deps.sh bench
	@bench/run.sh
