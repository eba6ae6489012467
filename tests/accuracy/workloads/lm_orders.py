#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""train_lm.py under several shuffles, one after the other, each in a process of its own: lm_orders.py ORDERS MODEL OPTIMIZER BATCH POS.

Prints "order SEED reserved BYTES", or "order SEED full" where the GPU is too small. An order with a batch of empty lines alone, on which
models fail, is passed over: no measured run can have had it. For ../line_orders.py: forks, so that PyTorch is imported once.
"""
import os
import sys

import torch
import train_lm


def run(seed, arguments):
    sys.argv = ["train_lm.py"] + arguments + ["--seed", str(seed)]
    try:
        train_lm.main()
        print("order", seed, "reserved", torch.cuda.max_memory_reserved(), flush=True)
    except torch.cuda.OutOfMemoryError:
        print("order", seed, "full", flush=True)
    except RuntimeError as error:
        if "0 elements" not in str(error):
            raise
        return 1
    return 0


def main():
    orders, seed = int(sys.argv[1]), 0
    while orders:
        seed += 1
        child = os.fork()
        if child == 0:
            status = 2
            try:
                status = run(seed, sys.argv[2:])
            finally:
                os._exit(status)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status not in (0, 1):
            sys.exit("order %d failed" % seed)
        orders -= status == 0


if __name__ == "__main__":
    main()
