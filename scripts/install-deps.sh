#!/usr/bin/env bash
# Installs the packages that Cellar's build, demo, tests and benchmarks need, on Debian and Ubuntu, as root or through
# sudo. Installs missing packages only; never changes an installed one.
#
#   install-deps.sh [bench|matrix]      "bench" adds fio, and DuckDB in bench/.venv; "matrix" adds patchelf and dpkg-dev
#
# PG_CONFIG selects an existing Postgres installation; the script then installs no Postgres.
set -euo pipefail

say() { printf '%s\n' "$*"; }
die() { printf 'install-deps: %s\n' "$*" >&2; exit 1; }

rust_wanted=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' "$(dirname "$0")/../Cargo.toml")

# Prints the pg_config of the newest server with headers; prints nothing if there is none.
find_pg_config() {
    local candidate
    for candidate in /usr/lib/postgresql/*/bin/pg_config; do
        [ -e "$(dirname "$candidate")/postgres" ] && [ -e "$("$candidate" --pgxs 2>/dev/null)" ] &&
            [ -e "$("$candidate" --includedir-server)/postgres.h" ] && printf '%s\n' "$candidate"
    done | sort -V | tail -n 1
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "these packages are missing and need root (there is no sudo here): ${missing[*]}"
    fi
}

missing=()
need_command() { command -v "$1" >/dev/null || missing+=("$2"); }

need_command cc build-essential
need_command make build-essential
need_command pkg-config pkg-config
need_command fusermount3 fuse3
need_command setpriv util-linux
need_command ps procps
if [ "${1:-}" = bench ]; then
    need_command fio fio
    need_command git git
    need_command python3 python3
    python3 -c 'import ensurepip, venv' 2>/dev/null || missing+=(python3-venv)
fi

if [ "${1:-}" = matrix ]; then
    need_command patchelf patchelf
    need_command dpkg-source dpkg-dev
    need_command python3 python3
    python3 -m pip --version >/dev/null 2>&1 || missing+=(python3-pip)
fi

if [ -n "${PG_CONFIG:-}" ]; then
    "$PG_CONFIG" --version >/dev/null 2>&1 || die "PG_CONFIG=$PG_CONFIG cannot be run"
elif [ -z "$(find_pg_config)" ]; then
    missing+=(postgresql-common)
fi

have_rust() {
    command -v cargo >/dev/null && command -v rustc >/dev/null &&
        [ "$(printf '%s\n' "$rust_wanted" "$(rustc --version | cut -d' ' -f2)" | sort -V | head -n 1)" = "$rust_wanted" ]
}

if ((${#missing[@]})) || ! have_rust; then
    command -v apt-get >/dev/null ||
        die "this is not Debian or Ubuntu: install ${missing[*]:-} and Rust $rust_wanted or newer manually"
fi

if ((${#missing[@]})); then
    mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u)
    say "installing: ${missing[*]}"
    export DEBIAN_FRONTEND=noninteractive
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    if [[ " ${missing[*]} " == *" postgresql-common "* ]]; then
        # The server package would create and start a default cluster; the scripts create their own clusters.
        drop_in=/etc/postgresql-common/createcluster.d/cellar-install.conf
        as_root mkdir -p "$(dirname "$drop_in")"
        printf 'create_main_cluster = false\n' | as_root tee "$drop_in" >/dev/null
        trap 'as_root rm -f "$drop_in"' EXIT
        version=$(apt-cache depends postgresql | sed -n 's/.*Depends: postgresql-\([0-9]*\)$/\1/p' | head -n 1)
        [ -n "$version" ] || die "apt knows no package postgresql"
        say "installing: postgresql-$version postgresql-server-dev-$version"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            "postgresql-$version" "postgresql-server-dev-$version" >/dev/null
    fi
fi

# Server headers built with ICU include ICU's headers, which the Postgres packages do not depend on.
pg_config=${PG_CONFIG:-$(find_pg_config)}
if [ -n "$pg_config" ] && grep -qs '^#define USE_ICU 1' "$("$pg_config" --includedir-server)/pg_config.h" &&
    ! cc -E -x c -include unicode/ucol.h /dev/null >/dev/null 2>&1; then
    missing=(libicu-dev)
    command -v apt-get >/dev/null || die "install the development files of ICU (unicode/ucol.h)"
    say "installing: libicu-dev"
    as_root apt-get update -qq
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends libicu-dev >/dev/null
fi

if ! have_rust; then
    # Use the distribution's Rust if it is new enough. Otherwise the user installs a toolchain with rustup.
    candidate=$(apt-cache policy rustc 2>/dev/null | sed -n 's/ *Candidate: \([0-9.]*\).*/\1/p')
    if ! command -v rustup >/dev/null && [ -n "$candidate" ] &&
        [ "$(printf '%s\n' "$rust_wanted" "$candidate" | sort -V | head -n 1)" = "$rust_wanted" ]; then
        say "installing: cargo rustc"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq cargo rustc >/dev/null
    fi
    have_rust || die "Rust $rust_wanted or newer is needed and $(rustc --version 2>/dev/null || echo 'no rustc') was found.
Install it with rustup (https://rustup.rs, or on Debian 13 and Ubuntu 24.04: apt-get install rustup && rustup default stable), then run this again."
fi

if [ "${1:-}" = bench ]; then
    venv=$(dirname "$0")/../bench/.venv
    [ -x "$venv/bin/python" ] || python3 -m venv "$venv"
    "$venv/bin/pip" install -q --disable-pip-version-check duckdb==2.0.0 psycopg2-binary==2.9.13
fi

[ -e /dev/fuse ] || as_root modprobe fuse 2>/dev/null || true
[ -e /dev/fuse ] || die "there is no /dev/fuse: the kernel's FUSE module is needed (in a container: --device /dev/fuse --cap-add SYS_ADMIN)"

say "$("$pg_config" --version), $(rustc --version | cut -d' ' -f1-2), $(fusermount3 --version | head -n 1)"
