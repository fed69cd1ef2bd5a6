#!/usr/bin/env bash
# Prints the folder of the PostgreSQL test sources that match the installed server: src/test of the distribution's source
# package. Downloads the package once with apt, from the system's archives but with private lists and settings, into
# ${XDG_CACHE_HOME:-~/.cache}/cellar. On Debian, other releases of the distribution are searched for a major version that
# the system's release lacks. CELLAR_PG_SOURCE names an unpacked source tree to use instead.
set -euo pipefail
# shellcheck source=scripts/lib.sh
. "$(dirname "$0")/lib.sh"

if [ -n "${CELLAR_PG_SOURCE:-}" ]; then
    printf '%s\n' "$CELLAR_PG_SOURCE"
    exit 0
fi
minor=$("$PG_CONFIG" --version | sed 's/^PostgreSQL \([0-9.]*\).*/\1/')
cache=${XDG_CACHE_HOME:-${HOME:-/root}/.cache}/cellar
destination=$cache/postgresql-$minor
if [ -e "$destination/src/test/regress/parallel_schedule" ]; then
    printf '%s\n' "$destination"
    exit 0
fi
command -v apt-get >/dev/null || die "there is no apt-get: set CELLAR_PG_SOURCE to an unpacked source of PostgreSQL $minor"
command -v dpkg-source >/dev/null || die "dpkg-source is missing (package dpkg-dev)"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work"/{lists/partial,archives/partial,download}
# The source archives of the system's own archives (the distribution or postgresql.org), with the distribution's keys.
keys=$(find /usr/share/keyrings /usr/share/postgresql-common/pgdg -maxdepth 1 \( -name '*.gpg' -o -name '*.asc' \) \
    2>/dev/null | grep -E '/(debian|ubuntu)-archive-keyring\.gpg$|pgdg' | paste -sd, || true)
# shellcheck disable=SC2016
apt-get indextargets --format '$(CREATED_BY)|$(ORIGIN)|$(REPO_URI)|$(RELEASE)|$(COMPONENT)' |
    awk -F'|' -v keys="${keys:+[signed-by=$keys] }" \
        '$1 == "Packages" && $2 ~ /Debian|Ubuntu|postgresql/ { print "deb-src " keys $3 " " $4 " " $5 }' |
    sort -u >"$work/sources.list"
if [ -z "$(apt-cache madison "postgresql-$PG_MAJOR")" ]; then
    # shellcheck disable=SC2016
    main=$(apt-get indextargets --format '$(CREATED_BY)|$(ORIGIN)|$(SUITE)|$(REPO_URI)' |
        awk -F'|' '$1 == "Packages" && $2 == "Debian" && $3 !~ /security|updates|backports/ { print $4; exit }')
    for suite in ${main:+stable unstable experimental}; do
        printf 'deb-src %s%s %s main\n' "${keys:+[signed-by=$keys] }" "$main" "$suite"
    done >>"$work/sources.list"
fi
[ -s "$work/sources.list" ] || die "apt has no lists of the distribution yet: run apt-get update as root"
apt=(apt-get -qq
    -o "Dir::Etc::SourceList=$work/sources.list" -o "Dir::Etc::SourceParts=-"
    -o "Dir::State::Lists=$work/lists" -o "Dir::Cache::Archives=$work/archives"
    -o "Dir::Cache::pkgcache=" -o "Dir::Cache::srcpkgcache=" -o "APT::Sandbox::User=$(id -un)"
    -o "Acquire::Languages=none")
"${apt[@]}" update >&2
# The installed version first, then the archives' other versions of this major version, newest first.
installed=$(dpkg-query -W -f '${source:Version}' "postgresql-$PG_MAJOR" 2>/dev/null || true)
cache_options=("${apt[@]:2}")
mapfile -t versions < <({
    printf '%s\n' "$installed"
    apt-cache "${cache_options[@]}" showsrc "postgresql-$PG_MAJOR" 2>/dev/null | sed -n 's/^Version: //p' | sort -rV
} | awk 'NF && !seen[$0]++')
cd "$work/download"
fetched=
for version in "${versions[@]}"; do
    if "${apt[@]}" source --download-only "postgresql-$PG_MAJOR=$version" >"$work/apt.log" 2>&1; then
        fetched=$version
        break
    fi
    say "the source $version of postgresql-$PG_MAJOR cannot be downloaded: $(grep -m1 '^E:' "$work/apt.log" || true)" >&2
done
[ -n "$fetched" ] || die "the archives contain no source of postgresql-$PG_MAJOR"
[ "$fetched" = "$installed" ] || say "using the tests of $fetched for the installed ${installed:-$minor}" >&2
dpkg-source -x ./*.dsc "$work/tree" >/dev/null 2>&1 || die "the source package cannot be unpacked"
mkdir -p "$cache"
rm -rf "$destination.new" "$destination"
mkdir -p "$destination.new/src"
mv "$work/tree/src/test" "$destination.new/src/test"
printf '%s\n' "${fetched%%-*}" >"$destination.new/VERSION"
mv "$destination.new" "$destination"
printf '%s\n' "$destination"
