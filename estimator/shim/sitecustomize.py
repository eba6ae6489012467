# SPDX-License-Identifier: Apache-2.0
# First on PYTHONPATH in a probe, so that every Python that the job starts runs this before the user's program.
# Waits for torch, then makes way for the sitecustomize that would have been imported without us.
import sys


def _wait_for_torch():
    import os

    if os.environ.get("GPUMEM_RECORD"):
        from _gpumem_shim import files, imports

        files.watch()
        imports.after("torch", "_gpumem_shim.probe", "start")
        imports.after("triton.common.build", "_gpumem_shim.triton_driver", "name_libcuda")
        for name in ("cuda.bindings._internal.runtime", "cuda.bindings._bindings.cyruntime", "cuda._cuda.ccudart"):
            imports.after(name, "_gpumem_shim.bindings", "redirect")


def _chain():
    import os

    here = os.path.dirname(os.path.realpath(__file__))
    ours = sys.modules.get("sitecustomize")
    path = sys.path[:]
    sys.path[:] = [entry for entry in path if os.path.realpath(entry or ".") != here]
    kept = sys.path[:]
    sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # noqa: F401
    except ImportError as error:
        sys.modules["sitecustomize"] = ours
        if error.name != "sitecustomize":
            raise
    except BaseException:
        sys.modules["sitecustomize"] = ours
        raise
    finally:
        # What the user's sitecustomize did to sys.path stays done; ours comes back for the shim's own modules.
        if sys.path == kept:
            sys.path[:] = path
        else:
            sys.path.append(here)


try:
    _wait_for_torch()
except Exception:  # A probe without its shim shows in the record; a program that dies of it would not be the user's.
    pass
_chain()
