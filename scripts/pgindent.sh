#!/usr/bin/env bash
# Formats the extension's C code with PostgreSQL's pgindent.
#
#   pgindent.sh [--check] [FILE ...]    default: all .c and .h files of extension/; --check prints a diff and fails
#                                       when a file is not formatted
#   pgindent.sh --ready                 succeeds when the tools are built, so that no download is needed
#
# pgindent and pg_bsd_indent come from the source package of postgresql-17 in Debian's archive. They are fetched and
# built once, and kept in ${XDG_CACHE_HOME:-~/.cache}/cellar/pgindent. CELLAR_PGINDENT names a folder to use instead;
# it must contain pgindent, pg_bsd_indent and typedefs.list.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"
cd "$ROOT"

source_version=17
suite=trixie

# Fetches the source package with private apt lists and builds pg_bsd_indent against the installed server's headers.
fetch_tools() {
    local work libraries
    command -v apt-get >/dev/null || die "no apt-get here: set CELLAR_PGINDENT to a folder with pgindent and pg_bsd_indent"
    command -v dpkg-source >/dev/null || die "dpkg-source is missing (package dpkg-dev)"
    work=$(mktemp -d)
    # shellcheck disable=SC2064
    trap "rm -rf '$work'" EXIT
    mkdir -p "$work"/{lists/partial,archives/partial,download}
    echo "deb-src [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main" \
        >"$work/sources.list"
    local apt=(apt-get -qq
        -o "Dir::Etc::SourceList=$work/sources.list" -o "Dir::Etc::SourceParts=-"
        -o "Dir::State::Lists=$work/lists" -o "Dir::Cache::Archives=$work/archives"
        -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o "APT::Sandbox::User=$(id -un)"
        -o "Acquire::Languages=none")
    "${apt[@]}" update >&2
    (cd "$work/download" && "${apt[@]}" source --download-only "postgresql-$source_version" >&2)
    dpkg-source -x "$work"/download/*.dsc "$work/tree" >/dev/null 2>&1 || die "the source package cannot be unpacked"
    libraries=$("$PG_CONFIG" --libdir)
    mkdir -p "$tools.new"
    "${CC:-cc}" -O2 -D_GNU_SOURCE -I"$("$PG_CONFIG" --includedir-server)" -I"$("$PG_CONFIG" --includedir)" \
        "$work"/tree/src/tools/pg_bsd_indent/*.c -o "$tools.new/pg_bsd_indent" \
        -L"$libraries" -L"$("$PG_CONFIG" --pkglibdir)" -lpgcommon -lpgport
    cp "$work"/tree/src/tools/pgindent/{pgindent,typedefs.list} "$tools.new/"
    rm -rf "$tools"
    mv "$tools.new" "$tools"
}

# PostgreSQL's typedefs, those of the extension and the client library, and those that only the server's headers have:
# typedefs.list omits types that PostgreSQL itself does not use.
list_typedefs() {
    cat "$tools/typedefs.list"
    find extension crates/client/include "$("$PG_CONFIG" --includedir-server)" -name '*.[ch]' -print0 | xargs -0 sed -nE \
        -e 's/^\}[[:space:]]*([A-Za-z_0-9]+);.*/\1/p' \
        -e 's/^typedef .*[ *]([A-Za-z_0-9]+);.*/\1/p'
}

tools=${CELLAR_PGINDENT:-${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cellar/pgindent}
if [ "${1:-}" = --ready ]; then
    [ -x "$tools/pg_bsd_indent" ]
    exit
fi
if [ ! -x "$tools/pg_bsd_indent" ]; then
    [ -z "${CELLAR_PGINDENT:-}" ] || die "there is no pg_bsd_indent in $tools"
    mkdir -p "$(dirname "$tools")"
    fetch_tools
fi

arguments=()
if [ "${1:-}" = --check ]; then
    arguments=(--check --diff)
    shift
fi
if [ $# = 0 ]; then
    mapfile -t files < <(find extension -name '*.[ch]' | sort)
    set -- "${files[@]}"
fi
typedefs=$(mktemp)
list_typedefs | LC_ALL=C sort -u >"$typedefs"
status=0
perl "$tools/pgindent" --indent="$tools/pg_bsd_indent" --typedefs="$typedefs" "${arguments[@]}" "$@" || status=$?
rm -f "$typedefs"
exit "$status"
