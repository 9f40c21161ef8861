#!/usr/bin/env bash
# The wheel as a user gets it: built by pip, installed outside the checkout, run on every supported Python that is on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
for version in 3.12 3.13 3.14; do  # 3.11 is what `make test` usually runs on; from 3.12 on one wheel serves all (stable ABI)
  python=
  for candidate in "$(command -v "python$version" || true)" "${PYENV_ROOT:-${HOME:-}/.pyenv}"/versions/"$version"*/bin/python; do
    if [ -x "$candidate" ] && "$candidate" -c '' 2>/dev/null; then python=$candidate; fi
  done
  if [ -z "$python" ]; then
    echo "python$version: not on this machine"
    continue
  fi
  "$python" -m venv "$work/$version"
  bin=$work/$version/bin
  [ -n "$(ls "$work"/*.whl 2>/dev/null)" ] || "$bin/pip" wheel -q --disable-pip-version-check --no-deps -w "$work" .
  "$bin/pip" install -q --disable-pip-version-check "$work"/*.whl
  (cd "$work" && LILLIPUT_CACHE=$work/cache "$bin/lilliput" generate demo Once --max-tokens 4 -q >/dev/null)
  echo "python$version: $(ls "$work"/*.whl | xargs -n 1 basename) works"
done
