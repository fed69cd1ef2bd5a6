#!/bin/sh
# Builds and runs the fuzz targets with the stable compiler and libFuzzer; needs a C++ compiler.
# `cargo fuzz run TARGET` works too, with the nightly compiler.
#
#   fuzz/run.sh TARGET [SECONDS]    runs a target; new inputs go to corpus/, failures to artifacts/
#   fuzz/run.sh build               builds all targets
set -eu
cd "$(dirname "$0")"
target=$1
seconds=${2:-60}
export RUSTFLAGS="--cfg fuzzing -C passes=sancov-module -C codegen-units=1 \
-C llvm-args=-sanitizer-coverage-level=4 \
-C llvm-args=-sanitizer-coverage-inline-8bit-counters \
-C llvm-args=-sanitizer-coverage-pc-table \
-C llvm-args=-sanitizer-coverage-trace-compares"
# An explicit --target keeps the flags away from build scripts and procedural macros.
host=$(rustc -vV | sed -n 's/^host: //p')
cargo build --quiet --release --target "$host" --bins
[ "$target" != build ] || exit 0
mkdir -p "corpus/$target" "artifacts/$target"
exec "${CARGO_TARGET_DIR:-target}/$host/release/$target" "corpus/$target" \
    -max_total_time="$seconds" -max_len=16384 -len_control=0 -artifact_prefix="artifacts/$target/" -print_final_stats=1
