# SPDX-License-Identifier: Apache-2.0
# What: TRL's supervised fine-tuning with LoRA and checkpointing, then DPO with a reference model; datasets is imported before torch.
# needs: trl datasets peft
# early end
# expect: that e["torch"] and e["steps"] >= 8
# expect: no-note "not followed from inside"
from datasets import Dataset
from peft import LoraConfig
from trl import DPOConfig, DPOTrainer, SFTConfig, SFTTrainer

import _words

COMMON = {"per_device_train_batch_size": 4, "bf16": True, "report_to": [], "save_strategy": "no", "logging_steps": 1}
words = _words.tokenizer()
lines = Dataset.from_list([{"text": _words.text(50, 100)} for _ in range(32)])
SFTTrainer(model=_words.llama(), args=SFTConfig("sft", gradient_checkpointing=True, num_train_epochs=1, max_steps=4, **COMMON), train_dataset=lines,
           processing_class=words, peft_config=LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")).train()
pairs = Dataset.from_list([{"prompt": _words.text(20, 20), "chosen": _words.text(30, 30), "rejected": _words.text(30, 30)} for _ in range(64)])
DPOTrainer(model=_words.llama(), ref_model=_words.llama(), args=DPOConfig("dpo", num_train_epochs=1, **COMMON), train_dataset=pairs, processing_class=words).train()
