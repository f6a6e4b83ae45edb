#!/usr/bin/env bash
# The steps of .github/workflows/release.yml; each can be run on any machine.
#
#     scripts/release.sh check TAG            checks that tag, Cargo.toml and CHANGELOG.md have the same version, with a date
#     scripts/release.sh notes                prints this version's entry in CHANGELOG.md
#     scripts/release.sh share BINARY FOLDER  manual pages and shell completions, where systems look for them below /usr/share
#     scripts/release.sh pack BINARY TARGET OUT    OUT/tova-bench-VERSION-TARGET.tar.gz: the stripped program, its manual pages
#                                             and completions, licences, README
#     scripts/release.sh sums FOLDER          FOLDER/SHA256SUMS of the archives and wheels in it
set -euo pipefail
repo=$(cd "$(dirname "$0")/.." && pwd)
fail() { echo "release: $*" >&2; exit 1; }

# The first `version = "..."`, which is the package's.
version=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$repo/Cargo.toml" | head -n 1)
[ -n "$version" ] || fail "Cargo.toml has no version"

heading() { grep -m 1 '^## \[' "$repo/CHANGELOG.md"; }

# The text below the first heading of a version, up to the next.
notes() {
    awk '/^## \[/ { n++; next } n == 1' "$repo/CHANGELOG.md" | sed -e '/./,$!d'
}

case "${1:-}" in
check)
    [ "${2:-}" = "v$version" ] || fail "the tag is ${2:-missing}, and Cargo.toml says $version: tag v$version"
    found=$(sed -n '/^name = "tova-bench"$/{n;s/^version = "\(.*\)"$/\1/p;}' "$repo/Cargo.lock")
    [ "$found" = "$version" ] || fail "Cargo.lock says $found, and Cargo.toml $version: run cargo check and commit"
    case "$(heading)" in
    "## [$version] - "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]) ;;
    *) fail "the top of CHANGELOG.md is '$(heading)'; a release has '## [$version] - <date>'" ;;
    esac
    notes | grep -q '^### Numbers$' || fail "the entry of $version in CHANGELOG.md has no section '### Numbers'"
    echo "release: $version"
    ;;
notes)
    notes
    ;;
share)
    [ $# -eq 3 ] || fail "share BINARY FOLDER"
    mkdir -p "$3"/{bash-completion/completions,zsh/site-functions,fish/vendor_completions.d}
    "$2" manual "$3/man/man1" > /dev/null
    "$2" completions bash > "$3/bash-completion/completions/tova-bench"
    "$2" completions zsh > "$3/zsh/site-functions/_tova-bench"
    "$2" completions fish > "$3/fish/vendor_completions.d/tova-bench.fish"
    ;;
pack)
    [ $# -eq 4 ] || fail "pack BINARY TARGET OUT"
    name=tova-bench-$version-$3
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    mkdir -p "$work/$name" "$4"
    install -m 755 "$2" "$work/$name/tova-bench"
    strip "$work/$name/tova-bench"
    # The program in the archive must run and print its version.
    said=$("$work/$name/tova-bench" --version)
    [ "$said" = "tova-bench $version" ] || fail "the program says '$said', not $version"
    bash "$0" share "$work/$name/tova-bench" "$work/$name/share"
    cp "$repo"/{LICENSE,LICENSE-MIT,LICENSE-APACHE,README.md,CHANGELOG.md} "$work/$name"
    cp "$repo/src/report/figure/font/LICENSE-DejaVu.txt" "$work/$name"
    tar -C "$work" -czf "$4/$name.tar.gz" "$name"
    echo "$4/$name.tar.gz"
    ;;
sums)
    cd "${2:?release: sums FOLDER}"
    shopt -s nullglob
    sha256sum -- *.tar.gz *.whl > SHA256SUMS
    cat SHA256SUMS
    ;;
*)
    sed -n '2,/^set/{/^set/d;s/^# \{0,1\}//;p}' "$0" >&2
    exit 2
    ;;
esac
