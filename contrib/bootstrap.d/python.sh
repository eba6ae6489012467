# SPDX-License-Identifier: Apache-2.0
# The demo's virtual environment with a CUDA build of PyTorch, and the cuDNN that gpumem brings for older ones.
# shellcheck shell=bash

TORCH_VERSION=2.11.0
TORCH_PACKAGES=("torch==$TORCH_VERSION" torchvision==0.26.0 numpy)
VENV=$STATE_DIR/venv/torch-$TORCH_VERSION
# What xMem's authors measured with (tests/accuracy/data), and the tests' example of a torch whose own cuDNN cannot plan.
OLDER_TORCH_VERSION=2.6.0
OLDER_TORCH_PACKAGES=("torch==$OLDER_TORCH_VERSION" torchvision==0.21.0 transformers==4.51.3 numpy)
OLDER_VENV=$STATE_DIR/venv/torch-$OLDER_TORCH_VERSION
# A cuDNN for CUDA 12 that can plan without a device (9.8 and newer can; the one in torch 2.6.0 cannot).
CUDNN_VERSION=9.10.2.21

# environment_has DIR PACKAGE[==VERSION] …: from the packages' metadata, since importing torch takes seconds.
environment_has() {
  local directory=$1
  shift
  [ -x "$directory/bin/python" ] && "$directory/bin/python" - "$@" <<'END'
import sys
from importlib.metadata import version
for package in sys.argv[1:]:
    name, _, wanted = package.partition("==")
    if wanted not in ("", version(name).split("+")[0]):
        sys.exit(1)
END
}

# make_environment DIR PACKAGE[==VERSION] …: a virtual environment with these, made anew where it lacks one.
make_environment() {
  local directory=$1 name
  shift
  name=$(basename "$directory")
  if environment_has "$directory" "$@" 2>/dev/null; then
    say "    $name is in $directory"
    return 0
  fi
  rm -rf "$directory"
  mkdir -p "$(dirname "$directory")"
  quietly "venv-$name.log" "making $directory" /usr/bin/python3 -m venv "$directory" || return 1
  quietly "pip-$name.log" "downloading $name with its CUDA libraries" \
    "$directory/bin/python" -m pip install --no-cache-dir --disable-pip-version-check "$@" || return 1
  environment_has "$directory" "$@" || die "pip succeeded, but $directory lacks one of: $*"
}

make_venv() { make_environment "$VENV" "${TORCH_PACKAGES[@]}"; }
make_older_venv() { make_environment "$OLDER_VENV" "${OLDER_TORCH_PACKAGES[@]}"; }

# install_cudnn CACHE_DIR [ENVIRONMENT]: puts the library into CACHE_DIR/cudnn, with the environment's pip (the demo's where
# none is named). The wheel is kept for the next prefix.
install_cudnn() {
  local target=$1/cudnn python=${2:-$VENV}/bin/python wheels=$STATE_DIR/wheels wheel
  if [ "$(cat "$target/VERSION" 2>/dev/null)" = "$CUDNN_VERSION" ]; then
    say "    cuDNN $CUDNN_VERSION is in $target"
    return 0
  fi
  wheel=$(find "$wheels" -name "nvidia_cudnn_cu12-$CUDNN_VERSION-*.whl" 2>/dev/null | head -n 1)
  if [ -z "$wheel" ]; then
    mkdir -p "$wheels"
    quietly cudnn.log "downloading cuDNN $CUDNN_VERSION (for PyTorch before 2.8)" \
      "$python" -m pip download --no-cache-dir --disable-pip-version-check --no-deps -d "$wheels" \
      "nvidia-cudnn-cu12==$CUDNN_VERSION" || return 1
    wheel=$(find "$wheels" -name "nvidia_cudnn_cu12-$CUDNN_VERSION-*.whl" | head -n 1)
  fi
  rm -rf "$target" "$target.new"
  mkdir -p "$target.new"
  quietly cudnn-unzip.log "unpacking cuDNN $CUDNN_VERSION" unzip -q "$wheel" 'nvidia/cudnn/lib/*' -d "$target.new" || return 1
  mv "$target.new"/nvidia/cudnn/lib/* "$target.new/" && rm -rf "$target.new/nvidia"
  echo "$CUDNN_VERSION" >"$target.new/VERSION"
  mv "$target.new" "$target"
}

# prepare_tracer PREFIX ENVIRONMENT: the tracer for the environment's torch, compiled once by root for all users.
prepare_tracer() {
  local name
  name=$(basename "$2")
  quietly "tracer-$name.log" "compiling the tracer for $name" \
    "$1/libexec/gpumem/gpumem-tracer" --cache "$1/var/cache/gpumem/tracer" "$2/bin/python"
}
