#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_lm.py under several shuffles, one after the other, each in a process of its own: lm_orders.py ORDERS MODEL OPTIMIZER BATCH POS.

Prints "order SEED reserved BYTES", or "order SEED full" where the GPU is too small. For ../line_orders.py: forks, so that PyTorch is
imported once.
"""
import os
import sys

import torch
import train_lm


def main():
    orders, arguments = int(sys.argv[1]), sys.argv[2:]
    for seed in range(1, orders + 1):
        child = os.fork()
        if child:
            if os.waitpid(child, 0)[1]:
                sys.exit("order %d failed" % seed)
            continue
        sys.argv = ["train_lm.py"] + arguments + ["--seed", str(seed)]
        try:
            train_lm.main()
            print("order", seed, "reserved", torch.cuda.max_memory_reserved(), flush=True)
        except torch.cuda.OutOfMemoryError:
            print("order", seed, "full", flush=True)
        os._exit(0)


if __name__ == "__main__":
    main()
