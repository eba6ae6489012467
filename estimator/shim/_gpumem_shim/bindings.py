# SPDX-License-Identifier: Apache-2.0
# NVIDIA's Python bindings carry a CUDA runtime of their own, linked statically, which the virtual GPU cannot stand in front of.
# Their modules call each other through the capsules that Cython exports: those of the runtime are made to point to the virtual GPU.
import ctypes

RTLD_NOLOAD = 4

_kept = []  # names of capsules must live as long as they


def redirect(module):
    try:
        library = ctypes.CDLL("libgpumem_vgpu.so", mode=RTLD_NOLOAD)
    except OSError:
        return  # no virtual GPU in this process
    try:
        from importlib.metadata import version

        major = int(version("cuda-bindings").split(".")[0])
    except Exception:
        major = 12  # before the package was called that
    generation = {11: b"libcudart.so.11.0", 12: b"libcudart.so.12"}.get(major, b"libcudart.so.13")
    find, find_versioned = ctypes.CDLL(None).dlsym, ctypes.CDLL(None).dlvsym
    for function, arguments in ((find, 2), (find_versioned, 3)):
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_void_p] + [ctypes.c_char_p] * (arguments - 1)
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    api.PyCapsule_New.restype, api.PyCapsule_New.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    exported = module.__pyx_capi__
    for name, capsule in list(exported.items()):
        function = name.lstrip("_").encode()
        if not function.startswith(b"cuda"):
            continue
        address = find_versioned(library._handle, function, generation) or find(library._handle, function)
        if address:
            text = api.PyCapsule_GetName(capsule)
            _kept.append(text)
            exported[name] = api.PyCapsule_New(address, text, None)
