#!/bin/sh
# Builds and runs a fuzz target with the stable compiler: fuzz/run.sh TARGET [SECONDS]
# cargo-fuzz works too (cargo fuzz run TARGET); this needs nothing but a C++ compiler.
set -eu
cd "$(dirname "$0")"
target=$1
seconds=${2:-60}
export RUSTFLAGS="--cfg fuzzing -C passes=sancov-module -C codegen-units=1 \
-C llvm-args=-sanitizer-coverage-level=4 \
-C llvm-args=-sanitizer-coverage-inline-8bit-counters \
-C llvm-args=-sanitizer-coverage-pc-table \
-C llvm-args=-sanitizer-coverage-trace-compares"
# With a target given, the flags do not reach build scripts and macros.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --release --target "$host" --bin "$target"
mkdir -p "corpus/$target" "artifacts/$target"
exec "${CARGO_TARGET_DIR:-target}/$host/release/$target" "corpus/$target" \
    -max_total_time="$seconds" -max_len=16384 -len_control=0 -artifact_prefix="artifacts/$target/" -print_final_stats=1
