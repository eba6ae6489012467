#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One tool on one workload, in the workload's own Python: peer.py TOOL XMEM_CHECKOUT WORKLOAD ARGUMENT… prints {"bytes": …}.

TOOL: mem-tracker, accelerate or xmem. Smallest adapters: each tool is given the same model, optimizer and batch.
"""
import argparse
import contextlib
import glob
import importlib.util
import json
import os
import runpy
import sys
import tempfile


class Workload:
    """Model, optimizer and batch of tests/accuracy/workloads, taken from the script itself."""

    def __init__(self, arguments):
        self.path = arguments[0]
        parser = argparse.ArgumentParser()
        parser.add_argument("model")
        parser.add_argument("optimizer")
        parser.add_argument("batch", type=int)
        parser.add_argument("zero_grad_pos", type=int)
        self.options, _ = parser.parse_known_args(arguments[1:])
        self.is_cnn = os.path.basename(self.path) == "train_cnn.py"
        sys.path.insert(0, os.path.dirname(self.path))
        spec = importlib.util.spec_from_file_location("workload", self.path)
        self.script = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.script)

    def entry(self):
        with open(os.path.join(os.path.dirname(self.path), "lm_models.json"), encoding="utf-8") as file:
            return json.load(file)["models"][self.options.model]

    def model(self):
        return self.script.MODELS[self.options.model]() if self.is_cnn else self.script.make_model(self.entry())

    def optimizer(self, model):
        import torch

        if self.options.optimizer == "Adafactor":
            import transformers

            return transformers.Adafactor(params=model.parameters(), lr=0.001, relative_step=False)
        return getattr(torch.optim, self.options.optimizer)(params=model.parameters(), lr=0.001)

    def batch(self, model, device):
        import torch

        if self.is_cnn:
            return torch.zeros(self.options.batch, 3, 86, 86, device=device), torch.zeros(self.options.batch, dtype=torch.long, device=device)
        ids = torch.zeros(self.options.batch, 128, dtype=torch.long, device=device)
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}

    def step(self, model, optimizer, batch):
        import torch

        position = self.options.zero_grad_pos
        if position == 0:
            optimizer.zero_grad()
        if self.is_cnn:
            loss = torch.nn.functional.cross_entropy(model(batch[0]), batch[1])
        else:
            loss = model(**batch).loss
        if position == 1:
            optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if position == 2:
            optimizer.zero_grad()


def fake_model(work, mode):
    """The model made of fake tensors; one that computes with tensors' values while it is made (RegNet) is made first and faked then."""
    import torch
    from torch._subclasses.fake_tensor import DataDependentOutputException

    try:
        with mode:
            return work.model()
    except DataDependentOutputException:
        model = work.model()
    for module in model.modules():
        for name, parameter in module._parameters.items():
            if parameter is not None:
                module._parameters[name] = torch.nn.Parameter(mode.from_tensor(parameter.detach()), requires_grad=parameter.requires_grad)
        for name, buffer in module._buffers.items():
            if buffer is not None:
                module._buffers[name] = mode.from_tensor(buffer)
    return model


def mem_tracker(work):
    """torch.distributed._tools.mem_tracker under fake tensors: nothing is computed. On fake CPU tensors where this PyTorch has no GPU to
    ask for fake CUDA tensors' kernels; its peak counts tensors, not segments."""
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.distributed._tools.mem_tracker import MemTracker

    device = torch.device("cpu")
    mode = FakeTensorMode()
    model = fake_model(work, mode)
    with mode:
        model.train()
        optimizer = work.optimizer(model)
        tracker = MemTracker()
        tracker.track_external(model, optimizer)
        with tracker:
            for _ in range(2):
                work.step(model, optimizer, work.batch(model, device))
                tracker.reset_mod_stats()
    peak = tracker.get_tracker_snapshot("peak")
    return max(sum(value for kind, value in of_device.items() if str(getattr(kind, "value", kind)) == "Total") for of_device in peak.values())


def accelerate(work):
    """`accelerate estimate-memory`: the model's size, times four for training with Adam. It reads configurations from a hub; here the same
    functions get the same model. It knows neither the batch nor other optimizers."""
    from accelerate import init_empty_weights
    from accelerate.utils import calculate_maximum_sizes

    with init_empty_weights():
        model = work.model()
    total, _ = calculate_maximum_sizes(model)
    return int(total) * 4


def trace(work, directory):
    """What xMem's profiler plugin records, around the workload: one wait, one warm-up, then active steps."""
    import torch
    from torch.utils.data import dataloader

    kind = torch.profiler
    profiler = kind.profile(
        activities=[kind.ProfilerActivity.CPU], schedule=kind.schedule(wait=1, warmup=1, active=5, repeat=1),
        on_trace_ready=kind.tensorboard_trace_handler(directory), record_shapes=True, profile_memory=True, with_stack=True, with_flops=False,
        with_modules=True)
    original = dataloader._BaseDataLoaderIter.__next__

    def next_batch(self):
        batch = original(self)
        profiler.step()
        return batch

    dataloader._BaseDataLoaderIter.__next__ = next_batch
    arguments, sys.argv = sys.argv, [work.path] + sys.argv[4:] + ["--device", "cpu"]
    profiler.start()
    try:
        with contextlib.redirect_stdout(sys.stderr):
            runpy.run_path(work.path, run_name="__main__")
    finally:
        profiler.stop()
        sys.argv = arguments
    return max(glob.glob(os.path.join(directory, "*.pt.trace.json")), key=os.path.getmtime)


def xmem(work, checkout):
    """xMem's own analysis of a trace of the workload. Its commands download data sets and configurations; its estimators are called here."""
    import inspect

    sys.path.insert(0, checkout)
    sys.setrecursionlimit(100000)
    with contextlib.redirect_stdout(sys.stderr), tempfile.TemporaryDirectory() as directory:
        path = trace(work, directory)
        from perf_estimator import estimator as own
        from perf_estimator.config import Config

        config = Config(save2tmp=True)
        if not work.is_cnn:
            import transformers

            config.trainer.huggingface_enable, config.trainer.huggingface_model_name = True, work.options.model
            entry = work.entry()
            made = transformers.AutoConfig.for_model(**entry["config"])
            transformers.AutoConfig.from_pretrained = classmethod(lambda cls, *arguments, **named: made)
            own.TrainerEstimator.suggest_automodel_class = lambda self, name: getattr(transformers, entry["class"])
        chosen = own.Estimator if work.is_cnn else own.TrainerEstimator
        given = {"profiler_file": path, "max_gpu_memory_in_gb": 64, "config": config}
        if "dataloader" in inspect.signature(chosen.__init__).parameters:
            given["dataloader"] = [work.batch(None, "cpu")] if work.is_cnn else None
        _, result = chosen(**given).estimate(target_iteration=2)
    return int(result["memory"]["segment"])


def main():
    tool, checkout = sys.argv[1:3]
    try:
        work = Workload(sys.argv[3:])
        answer = {"bytes": {"mem-tracker": mem_tracker, "accelerate": accelerate, "xmem": lambda w: xmem(w, checkout)}[tool](work)}
    except Exception as error:
        answer = {"error": "%s: %s" % (type(error).__name__, error)}
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
