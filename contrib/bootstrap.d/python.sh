# SPDX-License-Identifier: Apache-2.0
# The demo's virtual environment with a CUDA build of PyTorch, and the cuDNN that gpumem brings for older ones.
# shellcheck shell=bash

TORCH_VERSION=2.11.0
TORCHVISION_VERSION=0.26.0
VENV=$STATE_DIR/venv/torch-$TORCH_VERSION
# A cuDNN for CUDA 12 that can plan without a device (9.8 and newer can; the one in torch 2.6.0 cannot).
CUDNN_VERSION=9.10.2.21

# From the packages' metadata: importing torch takes seconds.
venv_is_complete() {
  [ -x "$VENV/bin/python" ] && "$VENV/bin/python" - <<END
import sys
from importlib.metadata import version
sys.exit(not (version("torch").split("+")[0] == "$TORCH_VERSION"
              and version("torchvision").split("+")[0] == "$TORCHVISION_VERSION" and version("numpy")))
END
}

make_venv() {
  if venv_is_complete 2>/dev/null; then
    say "    PyTorch $TORCH_VERSION is in $VENV"
    return 0
  fi
  rm -rf "$VENV"
  mkdir -p "$(dirname "$VENV")"
  quietly venv.log "making $VENV" /usr/bin/python3 -m venv "$VENV" || return 1
  quietly pip.log "downloading PyTorch $TORCH_VERSION with its CUDA libraries" \
    "$VENV/bin/python" -m pip install --no-cache-dir --disable-pip-version-check \
    "torch==$TORCH_VERSION" "torchvision==$TORCHVISION_VERSION" numpy || return 1
  venv_is_complete || die "pip succeeded, but $VENV lacks torch $TORCH_VERSION or torchvision $TORCHVISION_VERSION"
}

# install_cudnn CACHE_DIR: puts the library into CACHE_DIR/cudnn. The wheel is kept for the next prefix.
install_cudnn() {
  local target=$1/cudnn wheels=$STATE_DIR/wheels wheel
  if [ "$(cat "$target/VERSION" 2>/dev/null)" = "$CUDNN_VERSION" ]; then
    say "    cuDNN $CUDNN_VERSION is in $target"
    return 0
  fi
  wheel=$(find "$wheels" -name "nvidia_cudnn_cu12-$CUDNN_VERSION-*.whl" 2>/dev/null | head -n 1)
  if [ -z "$wheel" ]; then
    mkdir -p "$wheels"
    quietly cudnn.log "downloading cuDNN $CUDNN_VERSION (for PyTorch before 2.8)" \
      "$VENV/bin/python" -m pip download --no-cache-dir --disable-pip-version-check --no-deps -d "$wheels" \
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

# The tracer for the demo's torch, compiled once by root for all users.
prepare_tracer() {
  quietly tracer.log "compiling the tracer for PyTorch $TORCH_VERSION" \
    "$1/libexec/gpumem/gpumem-tracer" --cache "$1/var/cache/gpumem/tracer" "$VENV/bin/python"
}
