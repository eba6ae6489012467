# SPDX-License-Identifier: Apache-2.0
# What: 2:4 sparse weights by cuSPARSELt and by CUTLASS: compressed to 9/16 of their size, products of the right shape.
# needs: torch>=2.5
# expect: note "cuSPARSELt"
import torch
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured

device = "cuda"
weight = torch.zeros(1024, 2048, dtype=torch.float16)
weight[:, ::4] = weight[:, 1::4] = 1
weight = weight.to(device)
for cutlass in (False, True):
    SparseSemiStructuredTensor._FORCE_CUTLASS = cutlass
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    packed = to_sparse_semi_structured(weight)
    kept = torch.cuda.memory_allocated() - before
    assert kept >= weight.numel() * 2 * 9 // 16 and kept < weight.numel() * 2, (cutlass, kept / weight.numel())
    with torch.inference_mode():
        out = torch.nn.functional.linear(torch.ones(256, 2048, dtype=torch.float16, device=device), packed)
    assert out.shape == (256, 1024) and out.dtype == torch.float16
    del packed
if torch.backends.cusparselt.is_available():
    compressed = torch._cslt_compress(weight)
    assert compressed.numel() == weight.numel() * 9 // 16
    dense = torch.ones(2048, 128, dtype=torch.float16, device=device)
    assert torch._cslt_sparse_mm(compressed, dense).shape == (1024, 128)
    assert torch._cslt_sparse_mm_search(compressed, dense) is not None
print("ok")
