#!/bin/bash
#SBATCH --job-name=vit
#SBATCH --gres=gpu:1
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# SPDX-License-Identifier: Apache-2.0

python vision_transformer.py
