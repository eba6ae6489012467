# SPDX-License-Identifier: Apache-2.0
# What: every back end of scaled_dot_product_attention, the one that this GPU and version choose, grouped heads, masks.
# needs: torch>=2.5
# quick
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attend

device = "cuda"
B, H, S, D = 2, 8, 1024, 64


def tensors(dtype=torch.float16, heads=H, kv_heads=None, dim=D):
    kv_heads = kv_heads or heads
    return [torch.zeros(B, h, S, dim, device=device, dtype=dtype, requires_grad=True) for h in (heads, kv_heads, kv_heads)]


def step(q, k, v, **options):
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    out = attend(q, k, v, **options)
    out.sum().backward()
    assert out.shape == q.shape and all(t.grad is not None and t.grad.shape == t.shape for t in (q, k, v))
    return torch.cuda.max_memory_allocated() - before


SCORES = B * H * S * S * 2  # bytes of all attention scores in fp16: only the math back end has them
used = {}
for backend in (SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH):
    with sdpa_kernel(backend):
        used[backend.name] = step(*tensors(), is_causal=True, dropout_p=0.1)
assert used["MATH"] > SCORES > used["FLASH_ATTENTION"], used
assert used["EFFICIENT_ATTENTION"] < used["MATH"], used
with sdpa_kernel(SDPBackend.MATH):
    step(*tensors(torch.float32))
step(*tensors(torch.bfloat16))
step(*tensors(torch.float32))  # efficient: flash has no fp32
step(*tensors(), attn_mask=torch.zeros(B, 1, S, S, device=device, dtype=torch.float16))  # a mask: not flash
step(*tensors(dim=80))
q, k, v = tensors(kv_heads=2)
step(q, k, v, enable_gqa=True)

# As chosen on an Ampere GPU: flash attention, without the matrix of scores.
assert torch._fused_sdp_choice(*tensors()) == SDPBackend.FLASH_ATTENTION.value
assert torch._fused_sdp_choice(*tensors(torch.float32)) == SDPBackend.EFFICIENT_ATTENTION.value
assert step(*tensors()) < SCORES

# What a back end cannot do is refused as on the GPU.
with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
    try:
        step(*tensors(torch.float32))
        raise SystemExit("flash attention took fp32")
    except RuntimeError as error:
        assert "No available kernel" in str(error), error

layer = torch.nn.MultiheadAttention(256, 8, batch_first=True).to(device)
x = torch.zeros(2, 64, 256, device=device)
out, weights = layer(x, x, x, key_padding_mask=torch.zeros(2, 64, dtype=torch.bool, device=device))
assert weights.shape == (2, 64, 64)
out.sum().backward()
layer.eval()
with torch.inference_mode():  # the fused fast path
    assert layer(x, x, x, need_weights=False)[0].shape == x.shape
encoder = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(256, 8, batch_first=True), 2).to(device).eval()
with torch.no_grad():
    padding = torch.zeros(2, 64, dtype=torch.bool, device=device)
    padding[1, 40:] = True
    assert encoder(x, src_key_padding_mask=padding).shape[0] == 2
print("ok")
