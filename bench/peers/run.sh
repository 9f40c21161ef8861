#!/usr/bin/env bash
# Side by side with other programs on one checkpoint: run.sh MODEL [options of compare.py]. Peers live in an environment of their own.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
peers=${PEERS_VENV:-$root/build/peers}
if [ ! -e "$peers/.installed" ] || ! cmp -s "$here/requirements.txt" "$peers/.installed"; then
  python3 -m venv "$peers"
  "$peers/bin/python" -m pip install -q --disable-pip-version-check -r "$here/requirements.txt"
  cp "$here/requirements.txt" "$peers/.installed"
fi
exec "$root/.venv/bin/python" "$here/compare.py" --peer-python "$peers/bin/python" "$@"
