# SPDX-License-Identifier: Apache-2.0
# What: accelerate's ways to load a model over devices: init_empty_weights, load_checkpoint_and_dispatch, device_map="auto", the host for the rest.
# needs: transformers>=4.40 accelerate safetensors
# gpus: 2
# timeout: 600
# expect: that len([d for d in e["devices"] if d["peak_allocated_bytes"] > 600 * MiB]) == 2
import gc
import resource
import tempfile

import torch
from accelerate import cpu_offload, init_empty_weights, load_checkpoint_and_dispatch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

MIB = 1 << 20
config = LlamaConfig(hidden_size=2048, intermediate_size=5504, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=16, vocab_size=8000)
words = torch.arange(16).reshape(2, 8)


def ram_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024


def weights(model, device):
    return sum(p.numel() * p.element_size() for p in model.parameters() if p.device == torch.device(device))


def check(model, devices, inputs="cuda:0"):
    """It is where its map says, holds no more than that, and works."""
    gc.collect()
    places = set(model.hf_device_map.values())
    assert places == set(devices), model.hf_device_map
    for i in range(2):
        held, own = torch.cuda.memory_allocated(i), weights(model, f"cuda:{i}")
        assert own <= held < 1.05 * own + 24 * MIB, (i, held, own)  # less than 1 MiB of a block is not split off; cuBLAS's workspaces
    with torch.no_grad():
        out = model(words.to(inputs), labels=words.to(inputs))
    assert out.logits.shape == (2, 8, 8000) and out.loss.item() > 0
    del out
    torch.cuda.synchronize()


before_mib = ram_mib()
with tempfile.TemporaryDirectory() as directory:
    model = LlamaForCausalLM(config).to(torch.bfloat16)
    whole = sum(p.numel() * p.element_size() for p in model.parameters())
    assert whole > 1500 * MIB
    with torch.no_grad():
        model.model.norm.weight[:4] = torch.tensor([1.0, 2.0, 3.0, 4.0])
    model.save_pretrained(directory, max_shard_size="400MB")
    del model

    with init_empty_weights():
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.tie_weights()
    assert all(p.is_meta for p in model.parameters())
    model = load_checkpoint_and_dispatch(model, directory, device_map="auto", no_split_module_classes=["LlamaDecoderLayer"], dtype=torch.bfloat16)
    check(model, [0, 1])
    assert weights(model, "cuda:0") + weights(model, "cuda:1") == whole
    assert model.model.norm.weight[:4].tolist() == [1.0, 2.0, 3.0, 4.0]
    # What is trained of it lies on both.
    model.model.layers[0].mlp.up_proj.weight.grad = None
    loss = model(words.cuda(), labels=words.cuda()).loss
    loss.backward()
    assert model.model.layers[0].mlp.up_proj.weight.grad.device.index == 0 and model.model.layers[-1].mlp.up_proj.weight.grad.device.index == 1
    del model, loss

    # A limit that leaves layers to the host, which come to a GPU one by one.
    limits = {0: "600MB", 1: "600MB", "cpu": "16GB"}
    model = AutoModelForCausalLM.from_pretrained(directory, device_map="auto", torch_dtype=torch.bfloat16, max_memory=limits)
    check(model, [0, 1, "cpu"])
    assert weights(model, "cuda:0") + weights(model, "cuda:1") < 1200 * 10**6
    assert model.model.norm.weight.is_meta or model.model.norm.weight[:4].tolist() == [1.0, 2.0, 3.0, 4.0]
    del model

    model = AutoModelForCausalLM.from_pretrained(directory, torch_dtype=torch.bfloat16)
    gc.collect()
    cpu_offload(model, execution_device=torch.device("cuda", 1))
    torch.cuda.reset_peak_memory_stats(1)
    with torch.no_grad():
        assert model(words.to("cuda:1")).logits.device.type == "cuda"
    assert torch.cuda.max_memory_allocated(1) < 200 * MIB, torch.cuda.max_memory_allocated(1)
more_mib = ram_mib() - before_mib
assert more_mib < 1024, more_mib
print("ok", more_mib, "MiB of RAM more")
