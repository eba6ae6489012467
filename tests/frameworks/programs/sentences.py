# SPDX-License-Identifier: Apache-2.0
# What: sentence-transformers: its trainer in fp16 over pairs of sentences of different lengths, then embeddings of many.
# needs: sentence-transformers datasets accelerate
# expect: that e["steps"] >= 6
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments, losses, models
from transformers import BertConfig, BertModel

import _words

BertModel(BertConfig(hidden_size=256, num_hidden_layers=4, num_attention_heads=4, intermediate_size=1024, vocab_size=512)).save_pretrained("bert")
_words.tokenizer().save_pretrained("bert")
model = SentenceTransformer(modules=[models.Transformer("bert", max_seq_length=128), models.Pooling(256)], device="cuda")
pairs = Dataset.from_list([{"anchor": _words.text(5, 60), "positive": _words.text(5, 60)} for _ in range(192)])
settings = SentenceTransformerTrainingArguments("out", per_device_train_batch_size=32, num_train_epochs=1, fp16=True, report_to=[], save_strategy="no")
SentenceTransformerTrainer(model=model, args=settings, train_dataset=pairs, loss=losses.MultipleNegativesRankingLoss(model)).train()
assert model.encode(["w1 w2", "w3"] * 50).shape == (100, 256)
print("ok")
