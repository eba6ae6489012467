# SPDX-License-Identifier: Apache-2.0
# What: transformers' Trainer with accelerate: mixed precision, accumulation, checkpointing, clipping, evaluation, a saved and reloaded model.
# needs: torch>=2.4 transformers accelerate
# expect: that e["steps"] >= 12
import tempfile

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

set_seed(0)
config = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, vocab_size=1000)


class Lines(torch.utils.data.Dataset):
    def __init__(self, count):
        self.lines = torch.randint(0, 1000, (count, 64), generator=torch.Generator().manual_seed(0))

    def __len__(self):
        return len(self.lines)

    def __getitem__(self, i):
        return {"input_ids": self.lines[i], "attention_mask": torch.ones(64, dtype=torch.long), "labels": self.lines[i]}


with tempfile.TemporaryDirectory() as directory:
    peaks = {}
    for name, options in (("bf16", {"bf16": True, "gradient_checkpointing": True}), ("fp16", {"fp16": True, "optim": "adafactor"}), ("fp32", {})):
        torch.cuda.reset_peak_memory_stats()
        model = LlamaForCausalLM(config)
        arguments = TrainingArguments(directory, per_device_train_batch_size=8, gradient_accumulation_steps=2, num_train_epochs=1, max_steps=6,
                                      logging_steps=2, eval_strategy="steps", eval_steps=3, save_strategy="no", report_to=[], max_grad_norm=1.0,
                                      disable_tqdm=True, dataloader_num_workers=0, **options)
        trainer = Trainer(model=model, args=arguments, train_dataset=Lines(96), eval_dataset=Lines(16))
        result = trainer.train()
        assert result.global_step == 6, result
        losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
        assert len(losses) == 3 and all(loss == loss and 0 < loss < 100 for loss in losses), losses
        assert all(entry["eval_loss"] > 0 for entry in trainer.state.log_history if "eval_loss" in entry)
        peaks[name] = torch.cuda.max_memory_allocated()
    trainer.save_model(directory)
    model = LlamaForCausalLM.from_pretrained(directory, torch_dtype=torch.float16).cuda().eval()
    assert model.lm_head.weight.dtype == torch.float16
    with torch.no_grad():
        out = model.generate(torch.ones(1, 8, dtype=torch.long, device="cuda"), max_new_tokens=8, do_sample=False)
    assert out.shape[0] == 1 and 8 < out.shape[1] <= 16, out.shape
print("ok", peaks)
