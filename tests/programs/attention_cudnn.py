# SPDX-License-Identifier: Apache-2.0
# What: cuDNN's attention, whose engines cuDNN compiles on the GPU: chosen as on a Hopper GPU, finished without one.
# needs: torch>=2.5
# gpu: NVIDIA H100 80GB HBM3
# expect: note "compile"
# quick
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend

device = "cuda"
B, H, S, D = 2, 8, 2048, 128
SCORES = B * H * S * S * 2
assert torch.cuda.get_device_capability() == (9, 0)


def step(is_causal, kv_heads=H, **options):
    q, k, v = [torch.zeros(B, h, S, D, device=device, dtype=torch.bfloat16, requires_grad=True) for h in (H, kv_heads, kv_heads)]
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = attend(q, k, v, is_causal=is_causal, **options)
    out.sum().backward()
    assert out.shape == q.shape and all(t.grad is not None for t in (q, k, v))
    return torch.cuda.max_memory_allocated() - before


with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
    cudnn = step(True)
    assert step(True) == cudnn, "the second call finds the plan of the first"
    assert step(False) < SCORES and step(True, dropout_p=0.125) < SCORES
    assert step(True, attn_mask=None) < SCORES
    step(False, attn_mask=torch.zeros(B, H, S, S, device=device, dtype=torch.bfloat16))
    step(True, kv_heads=2, enable_gqa=True)
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    flash = step(True)
assert cudnn < SCORES and flash < SCORES, (cudnn, flash)
q = torch.zeros(B, H, S, D, device=device, dtype=torch.bfloat16)
chosen = torch._fused_sdp_choice(q, q, q, is_causal=True)
version = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])
if version >= (2, 11):
    assert chosen == SDPBackend.CUDNN_ATTENTION.value, "the default on Hopper"
assert step(True) == (cudnn if chosen == SDPBackend.CUDNN_ATTENTION.value else flash)
print("ok")
