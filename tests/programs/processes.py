# SPDX-License-Identifier: Apache-2.0
# What: CUDA tensors handed to other processes (torch.multiprocessing): values of small ones, shared both ways; memory counted once.
import torch
import torch.multiprocessing as multiprocessing

MIB = 1 << 20


def other(inbox, outbox):
    x = inbox.get(timeout=60)
    large = inbox.get(timeout=60)
    assert x.is_cuda and x.tolist() == [1.0, 2.0, 3.0, 4.0] and large.shape == (16 * MIB,)
    x.add_(1)                                    # seen by the sender
    torch.cuda.synchronize()
    outbox.put("written")
    assert inbox.get(timeout=60) == "written too" and x.tolist() == [2.0, 3.0, 4.0, 9.0]
    mine = torch.arange(6, device="cuda").view(2, 3)
    outbox.put(mine)
    assert inbox.get(timeout=60) == "end"
    del x, large


if __name__ == "__main__":
    context = multiprocessing.get_context("spawn")
    inbox, outbox = context.Queue(), context.Queue()
    child = context.Process(target=other, args=(inbox, outbox), daemon=True)
    child.start()
    x = torch.tensor([1.0, 2.0, 3.0, 4.0], device="cuda")
    large = torch.empty(16 * MIB, dtype=torch.uint8, device="cuda")
    inbox.put(x)
    inbox.put(large)
    assert outbox.get(timeout=100) == "written"
    assert x.tolist() == [2.0, 3.0, 4.0, 5.0], x.tolist()
    x[3] = 9.0
    torch.cuda.synchronize()
    inbox.put("written too")
    theirs = outbox.get(timeout=100)
    assert theirs.tolist() == [[0, 1, 2], [3, 4, 5]], theirs.tolist()
    del theirs
    inbox.put("end")
    child.join(100)
    assert child.exitcode == 0, child.exitcode
    print("ok")
