# SPDX-License-Identifier: Apache-2.0
# What: torch.cuda.gds: storages saved to a file from the GPU and loaded from it (cuFile).
# needs: torch>=2.7
# expect: note "cuFile: what is read from files"
import os
import tempfile

import torch

first, second = torch.arange(1024, device="cuda"), torch.ones(1 << 20, device="cuda")
torch.cuda.gds.gds_register_buffer(second.untyped_storage())
with tempfile.TemporaryDirectory() as folder:
    file = torch.cuda.gds.GdsFile(os.path.join(folder, "data"), os.O_CREAT | os.O_RDWR)
    file.save_storage(first.untyped_storage(), offset=0)
    file.save_storage(second.untyped_storage(), offset=first.nbytes)
    assert os.path.getsize(os.path.join(folder, "data")) == first.nbytes + second.nbytes
    with open(os.path.join(folder, "data"), "rb") as plain:
        assert plain.read(24)[8:] == bytes([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0])
    loaded, large = torch.zeros(1024, dtype=torch.int64, device="cuda"), torch.empty(1 << 20, device="cuda")
    file.load_storage(loaded.untyped_storage(), offset=0)
    file.load_storage(large.untyped_storage(), offset=first.nbytes)
    assert torch.equal(first.cpu(), loaded.cpu())
    del file
torch.cuda.gds.gds_deregister_buffer(second.untyped_storage())
