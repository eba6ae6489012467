# SPDX-License-Identifier: Apache-2.0
# The test programs marked "# quick", as an ordinary user, with the demo's PyTorch; `make check-versions` runs them all.
# shellcheck shell=bash

# The runner prints its tables with tests/tools.
mkdir "$WORK/tests"
cp -r "$SOURCE_DIR/tests/programs" "$SOURCE_DIR/tests/tools" "$WORK/tests"
chown -R "$DEMO_USER:" "$WORK/tests"
said=$(user "$WORK/tests/programs/run" --gpumem "$INSTALLED_PREFIX/bin/gpumem" --python "$VENV/bin/python" --quick 2>&1)
while IFS= read -r line; do
  case $line in
    "ok "*) pass "${line#ok * - }" ;;
    "not ok "*) fail "${line#not ok * - }" ;;
    "# "*) printf '%s\n' "$line" ;;
  esac
done <<<"$said"
like "$(tail -n 1 <<<"$said")" '^[1-9][0-9]* passed, 0 failed, 0 not in this version$' "all of them have run"
