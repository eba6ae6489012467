# SPDX-License-Identifier: Apache-2.0
# torchrun, python -m torch.distributed.run, accelerate launch and deepspeed in a probe. Where there are as many virtual GPUs as
# local ranks, the ranks are started as ever; else this process becomes rank 0 of those asked for, and the others are missing.
import os
import sys

from . import imports, record


def start(torch):
    imports.after("torch.distributed.launcher.api", "_gpumem_shim.launchers", "on_torch_launcher")
    imports.after("deepspeed.launcher.runner", "_gpumem_shim.launchers", "on_deepspeed")


def on_torch_launcher(api):
    original = api.launch_agent

    def launch_agent(config, entrypoint, args, **options):  # more of them since 2.15
        local, nodes = int(config.nproc_per_node), max(1, int(config.min_nodes))
        if nodes == 1 and 1 < local <= _devices():
            return original(config, entrypoint, args, **options)
        environment = _environment(local, nodes)
        environment.update(
            TORCHELASTIC_RESTART_COUNT="0",
            TORCHELASTIC_MAX_RESTARTS=str(config.max_restarts),
            TORCHELASTIC_RUN_ID=str(config.run_id or "none"),
            TORCHELASTIC_USE_AGENT_STORE="False",
            TORCH_NCCL_ASYNC_ERROR_HANDLING=os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
            ROLE_NAME=str(getattr(config, "role", "") or "default"), ROLE_RANK="0", ROLE_WORLD_SIZE=str(local * nodes),
            GROUP_RANK="0", GROUP_WORLD_SIZE=str(nodes),
        )
        if callable(entrypoint):
            os.environ.update(environment)
            return {0: entrypoint(*args)}
        _become([entrypoint] + [str(arg) for arg in args], environment, local * nodes)

    api.launch_agent = launch_agent


def on_deepspeed(runner):
    original = runner.main

    def main(args=None):
        options = runner.parse_args(args)
        nodes = _deepspeed_nodes(runner, options)
        local = options.num_gpus if options.num_gpus > 0 else _devices()
        if nodes == 1 and local <= _devices():
            return original(args)
        environment = _environment(local, nodes)
        environment.update(CROSS_RANK="0", CROSS_SIZE=str(nodes), LOCAL_SIZE=str(local))
        command = [] if getattr(options, "no_python", False) else [sys.executable, "-u"] + (["-m"] if options.module else [])
        command.append(options.user_script)
        if not getattr(options, "no_local_rank", False):
            command.append("--local_rank=0")
        _become(command + list(options.user_args), environment, local * nodes)

    runner.main = main


def _deepspeed_nodes(runner, options):
    if options.num_nodes > 0:
        return options.num_nodes
    try:
        return max(1, len(runner.fetch_hostfile(options.hostfile) or ()))
    except Exception:
        return 1


def _devices():
    import torch

    return torch.cuda.device_count()


def _environment(local, nodes):
    return {
        "MASTER_ADDR": os.environ.get("MASTER_ADDR", "127.0.0.1"),
        "MASTER_PORT": os.environ.get("MASTER_PORT", "29500"),
        "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": str(local * nodes), "LOCAL_WORLD_SIZE": str(local),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),
    }


def _become(command, environment, world):
    if world > 1:
        environment["GPUMEM_ALONE"] = "1"
        record.note("stand-in", "the launcher started rank 0 of %d only" % world)
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.execvpe(command[0], command, dict(os.environ, **environment))
