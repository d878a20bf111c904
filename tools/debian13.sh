#!/usr/bin/env bash
# Run the tests on Debian 13 (Python 3.13), in a folder that debootstrap fills once:
#
#     tools/debian13.sh /var/tmp/debian13                                 # make test
#     tools/debian13.sh /var/tmp/debian13 make test ARGS=tests/cli
#
# Needs root and debootstrap. Packages come from where this machine's apt and pip get theirs. The project's files
# are copied to /project in the folder, which keeps an environment of its own.
set -euo pipefail

folder=${1:?name a folder for Debian 13}
shift
[ $# -gt 0 ] || set -- make test
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [ ! -e "$folder/usr/bin/python3" ]; then
    # The mirror that this machine's apt uses; any has every release.
    mirror=$(apt-get indextargets --format '$(REPO_URI)' | grep '/debian/\?$' | head --lines 1) ||
        { echo "apt knows no mirror of Debian" >&2; exit 1; }
    debootstrap --variant=minbase --include=python3,python3-venv,make,git,ca-certificates,procps \
        trixie "$folder" "$mirror"
fi

# What this machine resolves, trusts and installs from.
for file in /etc/resolv.conf /etc/hosts /etc/ssl/certs/ca-certificates.crt /etc/pip.conf; do
    if [ -e "$file" ]; then cp --dereference "$file" "$folder$file"; fi
done

mkdir -p "$folder/project"
find "$folder/project" -mindepth 1 -maxdepth 1 ! -name .venv -exec rm -rf {} +
git ls-files --cached --others --exclude-standard --deduplicate -z | tar --create --ignore-failed-read --null --files-from - |
    tar --extract --no-same-owner --directory "$folder/project"

# In a mount namespace of its own: the mounts end with the command.
exec unshare --mount bash -c '
    folder=$1
    shift
    for mount in proc sys dev dev/shm dev/pts; do mount --bind "/$mount" "$folder/$mount"; done
    exec chroot "$folder" /usr/bin/env --chdir=/project HOME=/root LANG=C.UTF-8 \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin "$@"
' bash "$folder" "$@"
