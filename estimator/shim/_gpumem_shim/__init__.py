# SPDX-License-Identifier: Apache-2.0
# The Python side of a probe, inside the job's own interpreter (3.8 to 3.14). See sitecustomize.py for how it gets there.
#
#   imports   runs something after a module was imported, at no cost until then
#   probe     what happens after "import torch": the parts below are started, none of them may raise into the program
#   record    process-<pid>.jsonl (doc/contracts.md, "Record")
#   files     what the program opens for reading
#   steps     optimizer steps, peaks of memory, when it may end early
#   ending    how a followed process ends, and the last lines of its record
#   loader    shortened epochs
#   checkpoints  large files of tensors that nobody computed
#   batches   smaller batches, where they were asked for
#   snapshot  PyTorch's own memory history, where it was asked for
#   attribution  whose memory it is: modules, parameters, gradients, optimizer state
#   xmem      xMem's method: the program really trains on the CPU (redirect) while its allocations are recorded
#   triton_driver  where an old Triton finds the driver
#   tracer    the compiled tracer: values that come out as in a healthy run
#   distributed    torch.distributed's rendezvous: the other ranks are here, or missing
#   missing_ranks  answers for ranks that are not here
#   missing_store  the rendezvous store of a rank without the others
#   ranks          which ranks are here; the end of all of them at the same step
#   launchers      torchrun, accelerate launch, deepspeed
