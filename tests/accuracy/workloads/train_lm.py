#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language-model training script, as in xMem's evaluation: a transformers model from its configuration, wikitext-2, fp32.

    train_lm.py MODEL OPTIMIZER BATCH ZERO_GRAD_POS

ZERO_GRAD_POS: 0 at the start of an iteration, 1 just before backward, 2 after step. Four iterations are trained.
An ordinary program: it knows nothing of gpumem. Configurations: lm_models.json. Lines have the lengths of wikitext-2's
(line_lengths.json; empty ones too, as in the evaluation), cut at 128 tokens; a batch is padded to its longest line.
"""
import argparse
import contextlib
import json
import os
import random

import torch
import transformers
from transformers.modeling_utils import no_init_weights

HERE = os.path.dirname(os.path.abspath(__file__))
LONGEST = 128  # the tokenizer's max_length
LINES = 36718  # of wikitext-2's training split


class Lines(torch.utils.data.Dataset):
    """Tokenized lines: only their lengths are wikitext-2's."""

    def __init__(self, vocabulary, special_tokens):
        with open(os.path.join(HERE, "line_lengths.json"), encoding="utf-8") as file:
            counts = json.load(file)["lines_by_tokens"]
        draw = random.Random(0)
        self.lengths = [min(LONGEST, length + special_tokens)
                        for length in draw.choices(range(len(counts)), weights=counts, k=LINES)]
        self.vocabulary = vocabulary

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        return torch.randint(2, self.vocabulary, (self.lengths[index],))


class Collator:
    """What DataCollatorForLanguageModeling(mlm=False) makes of lines: padding, a mask, and labels that ignore padding."""

    def __init__(self, side, fixed):
        self.side = side
        self.fixed = fixed  # the evaluation pads every line to the longest of 1000 for some models

    def __call__(self, lines):
        longest = LONGEST if self.fixed else max(len(line) for line in lines)
        input_ids = torch.zeros(len(lines), longest, dtype=torch.long)
        attention_mask = torch.zeros_like(input_ids)
        for row, line in enumerate(lines):
            where = slice(longest - len(line), longest) if self.side == "left" else slice(0, len(line))
            input_ids[row, where] = line
            attention_mask[row, where] = 1
        labels = input_ids.masked_fill(attention_mask == 0, -100)
        return {"input_ids": input_ids, "attention_mask": attention_mask, "labels": labels}


def make_model(entry):
    config = transformers.AutoConfig.for_model(**entry["config"])
    config.torch_dtype = torch.float32
    return getattr(transformers, entry["class"]).from_config(config)


def main():
    with open(os.path.join(HERE, "lm_models.json"), encoding="utf-8") as file:
        entries = json.load(file)["models"]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=sorted(entries))
    parser.add_argument("optimizer")
    parser.add_argument("batch", type=int)
    parser.add_argument("zero_grad_pos", type=int, choices=(0, 1, 2))
    parser.add_argument("--iterations", type=int, default=4)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--seed", type=int, default=0, help="of the loader's shuffle")
    parser.add_argument("--fixed-length", action="store_true", help="every line has 128 tokens")
    parser.add_argument("--skip-init", action="store_true", help="leave the weights uninitialised (transformers' no_init_weights)")
    arguments = parser.parse_args()
    entry = entries[arguments.model]

    torch.manual_seed(arguments.seed)
    device = torch.device(arguments.device)
    with no_init_weights() if arguments.skip_init else contextlib.nullcontext():
        model = make_model(entry)
    model.tie_weights()  # done already, unless --skip-init
    model.train()
    lines = Lines(model.config.vocab_size, entry["tokenizer"]["special_tokens"])
    if arguments.fixed_length:
        lines.lengths = [LONGEST] * len(lines)
    loader = torch.utils.data.DataLoader(
        lines, batch_size=arguments.batch, shuffle=True,
        collate_fn=Collator(entry["tokenizer"]["padding_side"], entry["tokenizer"]["padded_to_longest_of_1000"]))
    if arguments.optimizer == "Adafactor":
        optimizer = transformers.Adafactor(params=model.parameters(), lr=0.001, relative_step=False)
    else:
        optimizer = getattr(torch.optim, arguments.optimizer)(params=model.parameters(), lr=0.001)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=7, gamma=0.1)
    model.to(device)
    for index, batch in enumerate(loader):
        if arguments.zero_grad_pos == 0:
            optimizer.zero_grad()
        batch = {name: value.to(device) for name, value in batch.items()}
        outputs = model(**batch)
        if arguments.zero_grad_pos == 1:
            optimizer.zero_grad()
        loss = outputs.loss
        loss.backward()
        optimizer.step()
        if arguments.zero_grad_pos == 2:
            optimizer.zero_grad()
        print(f"iteration {index}: {tuple(batch['input_ids'].shape)}")
        if index + 1 >= arguments.iterations:
            break
        scheduler.step()


if __name__ == "__main__":
    main()
