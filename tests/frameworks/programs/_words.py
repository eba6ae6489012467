# SPDX-License-Identifier: Apache-2.0
# A tokenizer of 500 words that needs no download, a small Llama for it, and texts.
import random

from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

SPECIAL = {"unk_token": "[UNK]", "pad_token": "[PAD]", "bos_token": "[CLS]", "eos_token": "[SEP]", "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}


def tokenizer():
    words = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.train_from_iterator([" ".join(f"w{i}" for i in range(500))], trainers.WordLevelTrainer(special_tokens=["[UNK]", "[PAD]", "[CLS]", "[SEP]", "[MASK]"]))
    return PreTrainedTokenizerFast(tokenizer_object=words, **SPECIAL, chat_template="{% for m in messages %}{{m['content']}} {% endfor %}")


def llama():
    return LlamaForCausalLM(LlamaConfig(hidden_size=256, intermediate_size=688, num_hidden_layers=4, num_attention_heads=8, vocab_size=512,
                                        pad_token_id=1, bos_token_id=2, eos_token_id=3))


def text(fewest, most):
    return " ".join(f"w{random.randrange(500)}" for _ in range(random.randint(fewest, most)))
