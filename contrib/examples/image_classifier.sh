#!/bin/bash
#SBATCH --job-name=classifier
#SBATCH --gres=gpu:1
#SBATCH --time=00:10:00
#SBATCH --output=%x-%j.out
# SPDX-License-Identifier: Apache-2.0

python image_classifier.py
