# To be sourced at the root of the repository: puts a cmake on the PATH, from .venv or from a small environment of its own.
PATH="$PWD/.venv/bin:$PWD/build/tools/bin:$PATH"
if ! command -v cmake >/dev/null; then
  python3 -m venv build/tools
  build/tools/bin/python -m pip install -q --disable-pip-version-check cmake
fi

# install PACKAGE...: Debian packages that are not there yet.
install() {
  local missing=()
  for package in "$@"; do
    [ "$(dpkg-query -W -f '${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
  done
  [ ${#missing[@]} -eq 0 ] && return
  local root=()
  [ "$(id -u)" -eq 0 ] || root=(sudo)
  "${root[@]}" apt-get update -qq -o Acquire::Retries=3
  DEBIAN_FRONTEND=noninteractive "${root[@]}" apt-get install -y -qq -o Acquire::Retries=3 --no-install-recommends "${missing[@]}"
}

# selftest DIRECTORY [CMAKE OPTION...]: builds the core's self-test programs there.
selftest() {
  local directory=$1
  shift
  cmake -S . -B "$directory" -DLILLIPUT_PYTHON=OFF -DLILLIPUT_SELFTEST=ON -DLILLIPUT_WERROR=ON "$@" >/dev/null
  cmake --build "$directory" --target lilliput_selftest --target lilliput_reader_stress -j 2
}
