#!/bin/bash
#SBATCH --job-name=gpt
#SBATCH --gres=gpu:1
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# SPDX-License-Identifier: Apache-2.0

python language_model.py
