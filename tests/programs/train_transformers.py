# SPDX-License-Identifier: Apache-2.0
# What: a small GPT-2 and a small Llama of transformers: padded batches, label masks, AdamW, clipped gradients, generation.
# needs: transformers
# timeout: 240
import math

import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, get_linear_schedule_with_warmup


def train(model):
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    schedule = get_linear_schedule_with_warmup(optimizer, 2, 10)
    tokens = torch.randint(1, 1000, (4, 128))
    mask = torch.ones_like(tokens)
    mask[1, 100:] = 0
    labels = tokens.masked_fill(mask == 0, -100)
    for step in range(4):
        loss = model(input_ids=tokens.cuda(), attention_mask=mask.cuda(), labels=labels.cuda()).loss
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    assert math.isfinite(loss.item()) and loss.item() != 0, loss
    assert math.isfinite(norm.item()) and norm.item() != 0, norm
    parameters = sum(p.numel() * 4 for p in model.parameters())
    assert torch.cuda.memory_allocated() >= 3 * parameters
    model.eval()
    with torch.no_grad():
        made = model.generate(tokens[:1, :16].cuda(), max_new_tokens=4, do_sample=False, pad_token_id=0)
    assert made.shape[0] == 1 and 17 <= made.shape[1] <= 20, made.shape
    return parameters


gpt = train(GPT2LMHeadModel(GPT2Config(vocab_size=1000, n_positions=256, n_embd=256, n_layer=4, n_head=4)))
llama = train(LlamaForCausalLM(LlamaConfig(vocab_size=1000, hidden_size=256, intermediate_size=688, num_hidden_layers=4,
                                           num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=256)))
print("ok", gpt, llama)
