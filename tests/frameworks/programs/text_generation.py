# SPDX-License-Identifier: Apache-2.0
# What: transformers' generate: sampled, by beams and greedy texts have their full length.
# needs: transformers
import torch

import _words

model = _words.llama().to("cuda", torch.bfloat16).eval()
prompts = torch.randint(10, 500, (4, 16), device="cuda")
for way in ({"do_sample": True, "top_p": 0.9, "top_k": 50}, {"num_beams": 4}, {"do_sample": False}):
    texts = model.generate(prompts, attention_mask=torch.ones_like(prompts), max_new_tokens=24, **way)
    assert texts.shape == (4, 40), (way, texts.shape)
print("ok")
