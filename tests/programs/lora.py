# SPDX-License-Identifier: Apache-2.0
# What: PEFT's LoRA on a transformers model: only the adapters have gradients and optimizer state.
# needs: transformers peft
import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

config = LlamaConfig(hidden_size=1024, intermediate_size=2048, num_hidden_layers=4, num_attention_heads=8, vocab_size=1000)
model = LlamaForCausalLM(config).to("cuda", torch.bfloat16)
base = torch.cuda.memory_allocated()
model = get_peft_model(model, LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM"))
adapters = [p for p in model.parameters() if p.requires_grad]
assert len(adapters) == 4 * 2 * 2
optimizer = torch.optim.AdamW(adapters)
ids = torch.randint(0, 1000, (2, 64), device="cuda")
for _ in range(3):
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
assert 0 < loss.item() < 100
assert all(p.grad is None for p in model.parameters() if not p.requires_grad)
assert torch.cuda.max_memory_allocated() < base + (64 << 20), (base, torch.cuda.max_memory_allocated())
print("ok")
