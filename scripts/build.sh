#!/usr/bin/env bash
# Builds everything in release mode: the `cellar` binary, the client library, the harness and the extension.
# CELLAR_PROFILE=tests builds in the profile of `make test`, which takes less time. The scripts use the programs of the last build.
#
#   build.sh              builds
#   build.sh extension    builds, and installs the extension into the Postgres of PG_CONFIG
#   build.sh install      as above; also installs cellar, its man pages and its systemd unit below PREFIX (/usr/local)
set -euo pipefail
CELLAR_PROFILE=${CELLAR_PROFILE:-release}
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
what=${1:-build}
case $what in
build | extension | install) ;;
-h | --help) sed -n '2,/^set /{/^#/s/^# \{0,1\}//p}' "$0" && exit ;;
*) die "unknown: $what (build, extension or install)" ;;
esac
cd "$ROOT"

# with_right_to_write FOLDER COMMAND ...: runs the command, with sudo if FOLDER is not writable.
with_right_to_write() {
    local folder=$1
    shift
    if [ -w "$folder" ]; then "$@"
    elif command -v sudo >/dev/null; then sudo "$@"
    else die "$folder is not writable and there is no sudo"
    fi
}

# make_extension TARGET [COMMAND ...]: runs make in a copy of the sources, one per Postgres version and profile: objects of
# different versions do not mix, and the working tree stays clean.
make_extension() {
    local folder
    folder=$TARGET/$CELLAR_PROFILE/extension-$("$PG_CONFIG" --version | tr -c 'A-Za-z0-9.\n' _)
    mkdir -p "$folder"
    (cd "$ROOT/extension" && find . -type f ! -name '*.o' ! -name '*.so' ! -name '*.bc' -print0 | xargs -0 cp --parents -p -t "$folder")
    "${@:2}" make -s -C "$folder" PG_CONFIG="$PG_CONFIG" CELLAR_CLIENT_LIB="$TARGET/$CELLAR_PROFILE/libcellar_client.a" \
        CELLAR_CLIENT_INCLUDE="$ROOT/crates/client/include" "$1"
}

install_extension() {
    make_extension all
    make_extension install with_right_to_write "$("$PG_CONFIG" --pkglibdir)" >/dev/null
    say "the extension is installed in $("$PG_CONFIG" --version)"
}

cargo build --profile "$CELLAR_PROFILE" --locked -p cellar -p cellar-client -p cellar-harness
printf '%s\n' "$CELLAR_PROFILE" >"$TARGET/profile"
case $what in
build) make_extension all ;;
extension) install_extension ;;
install)
    install_extension
    prefix=${PREFIX:-/usr/local}
    with_right_to_write "$prefix" install -D -m 755 "$CELLAR_BIN" "$prefix/bin/cellar"
    say "$prefix/bin/cellar is installed"
    for link in cellcli dcli; do
        with_right_to_write "$prefix" ln -sf cellar "$prefix/bin/$link"
        say "$prefix/bin/$link is a link to cellar"
    done
    unit=$(mktemp)
    sed "s|^ExecStart=/usr/bin/|ExecStart=$prefix/bin/|" dist/cellar-cell@.service >"$unit"
    with_right_to_write "$prefix" install -D -m 644 "$unit" "$prefix/lib/systemd/system/cellar-cell@.service"
    rm -f "$unit"
    say "$prefix/lib/systemd/system/cellar-cell@.service is installed"
    pages=$(mktemp -d)
    "$CELLAR_BIN" man-pages "$pages"
    with_right_to_write "$prefix" install -D -m 644 -t "$prefix/share/man/man1" "$pages"/*.1
    rm -rf "$pages"
    say "$prefix/share/man/man1/cellar*.1 are installed"
    ;;
esac
