#!/bin/bash
#SBATCH --job-name=lstm
#SBATCH --gres=gpu:1
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# SPDX-License-Identifier: Apache-2.0

python lstm.py
