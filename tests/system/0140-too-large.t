# SPDX-License-Identifier: Apache-2.0
# A job that fits no GPU of the pool is told so at submit, with what would help.
# shellcheck shell=bash

fixture hold.py
script large.sh <<'END'
#!/bin/bash
#SBATCH --gres=gpu:1
python hold.py 14000 0
END
submit large.sh
is "$STATUS" 0 "it is submitted"
like "$SAID" 'more than the .*GiB of one NVIDIA GeForce RTX 3060' "the line says that no GPU is large enough"
