# SPDX-License-Identifier: Apache-2.0
# What: TRL's GRPO: completions are sampled up to their full length, rewarded by the program and trained on.
# needs: trl>=0.15 datasets
# expect: that e["steps"] == 2
from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

import _words

lengths = []


def reward(completions, **_):
    lengths.extend(len(words.split()) for words in completions)
    return [float(len(set(words.split()))) for words in completions]


prompts = Dataset.from_list([{"prompt": _words.text(20, 20)} for _ in range(32)])
settings = GRPOConfig("grpo", per_device_train_batch_size=8, num_generations=4, max_completion_length=32, max_steps=2, bf16=True, report_to=[], save_strategy="no")
GRPOTrainer(model=_words.llama(), reward_funcs=reward, args=settings, train_dataset=prompts, processing_class=_words.tokenizer()).train()
assert lengths and max(lengths) > 20, lengths
print("ok")
