#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the committed tables of CUDA's interface (*.def) from NVIDIA's headers and libraries: names, numbers, offsets.
A developer's tool, run when a new CUDA generation appears (its version goes into WHEELS); the build needs none of its inputs.
Usage: regenerate.py --wheels DIR [--check]: gets the wheels below from PyPI once, keeps them in DIR, and writes the tables, or
with --check says which of them are not what it would write (make check-headers does).
"""
import argparse
import ctypes
import glob
import os
import re
import subprocess
import sys
import tempfile
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))

# What the committed tables were written from: the newest of each generation. All but cuda11's lack the folder crt/, which is its own.
WHEELS = {
    "11": "nvidia-cuda-runtime-cu11==11.8.89",
    "12": "nvidia-cuda-runtime-cu12==12.9.79",
    "13": "nvidia-cuda-runtime==13.5.37",
    "crt": "nvidia-cuda-crt==13.2.78",
    "nvml": "nvidia-nvml-dev==13.5.37",
}

# Structures whose layout the virtual GPU relies on: our name, NVIDIA's, header, generations.
STRUCTS = {
    "DeviceProperties": ("cudaDeviceProp", ["11", "12", "13"]),
    "PointerAttributes": ("cudaPointerAttributes", ["12", "13"]),
    "FunctionAttributes": ("cudaFuncAttributes", ["11", "12", "13"]),
    "MemoryLocation": ("cudaMemLocation", ["11", "12", "13"]),
    "MemoryAccess": ("cudaMemAccessDesc", ["11", "12", "13"]),
    "MemoryPoolProperties": ("cudaMemPoolProps", ["11", "12", "13"]),
    "MemoryNodeParameters": ("cudaMemAllocNodeParams", ["11", "12", "13"]),
    "ConditionalNodeParameters": ("cudaConditionalNodeParams", ["12"]),
    "PeerCopy3D": ("cudaMemcpy3DPeerParms", ["11", "12", "13"]),
    "LaunchConfiguration": ("cudaLaunchConfig_t", ["11", "12", "13"]),
    "PitchedPointer": ("cudaPitchedPtr", ["11", "12", "13"]),
    "Position": ("cudaPos", ["11", "12", "13"]),
    "Extent": ("cudaExtent", ["11", "12", "13"]),
    "Copy3D": ("cudaMemcpy3DParms", ["11", "12", "13"]),
    "GraphEdge": ("cudaGraphEdgeData", ["12", "13"]),
    "GraphUpdateResult": ("cudaGraphExecUpdateResultInfo", ["12", "13"]),
    "GraphInstantiateParameters": ("cudaGraphInstantiateParams", ["12", "13"]),
    "HostNodeParameters": ("cudaHostNodeParams", ["11", "12", "13"]),
    "IpcHandle": ("cudaIpcMemHandle_t", ["11", "12", "13"]),
    "PhysicalProperties": ("CUmemAllocationProp", ["11", "12", "13"]),
    "PhysicalAccess": ("CUmemAccessDesc", ["11", "12", "13"]),
    "DriverCopy2D": ("CUDA_MEMCPY2D", ["11", "12", "13"]),
    "DriverUuid": ("CUuuid", ["11", "12", "13"]),
    "DriverLaunchConfiguration": ("CUlaunchConfig", ["12", "13"]),
    "DriverLegacyProperties": ("CUdevprop", ["11", "12", "13"]),
    # Kept and said again without being looked into: their sizes count (virtual_gpu/device/textures.h, graph_nodes.h).
    "ResourceDescription": ("cudaResourceDesc", ["11", "12", "13"]),
    "ViewDescription": ("cudaResourceViewDesc", ["11", "12", "13"]),
    "DriverTextureDescription": ("CUDA_TEXTURE_DESC", ["11", "12", "13"]),
    "DriverResourceDescription": ("CUDA_RESOURCE_DESC", ["11", "12", "13"]),
    "DriverViewDescription": ("CUDA_RESOURCE_VIEW_DESC", ["11", "12", "13"]),
    "FillNode": ("cudaMemsetParams", ["11", "12", "13"]),
    "DriverFillNode": ("CUDA_MEMSET_NODE_PARAMS", ["11", "12", "13"]),
    "DriverCopyNode": ("CUDA_MEMCPY3D", ["11", "12", "13"]),
    "DriverHostNode": ("CUDA_HOST_NODE_PARAMS", ["11", "12", "13"]),
    "SemaphoreNode": ("cudaExternalSemaphoreSignalNodeParams", ["11", "12", "13"]),
    "DriverSemaphoreNode": ("CUDA_EXT_SEM_WAIT_NODE_PARAMS", ["11", "12", "13"]),
    "SignalParameters": ("cudaExternalSemaphoreSignalParams", ["11", "12", "13"]),
    "WaitParameters": ("cudaExternalSemaphoreWaitParams", ["11", "12", "13"]),
    "DriverBatchNode": ("CUDA_BATCH_MEM_OP_NODE_PARAMS", ["12", "13"]),
}
NVML_STRUCTS = {
    "NvmlMemory": "nvmlMemory_t", "NvmlMemoryV2": "nvmlMemory_v2_t", "NvmlProcessV1": "nvmlProcessInfo_v1_t",
    "NvmlProcessV2": "nvmlProcessInfo_v2_t", "NvmlPci": "nvmlPciInfo_t", "NvmlUtilization": "nvmlUtilization_t",
    "NvmlBar1": "nvmlBAR1Memory_t",
}


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as f:
        return f.read()


def without_comments(text):
    return re.sub(r"//[^\n]*", "", re.sub(r"/\*.*?\*/", " ", text, flags=re.S))


def unpacked(requirement, wheels, python=sys.executable):
    """The folder with the wheel's files, downloaded once."""
    name, version = requirement.split("==")
    folder = os.path.join(wheels, f"{name}-{version}")
    if not os.path.isdir(folder):
        os.makedirs(wheels, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=wheels) as work:
            subprocess.run([python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps", "-d", work, requirement], check=True)
            for wheel in glob.glob(work + "/*.whl"):
                zipfile.ZipFile(wheel).extractall(work + "/files")
            os.rename(work + "/files", folder)
    return folder


def one(folder, pattern):
    found = sorted(glob.glob(os.path.join(folder, "**", pattern), recursive=True), key=len)
    if not found:
        raise FileNotFoundError(f"{folder} has no {pattern}")
    return found[0]


def table(lines, about):
    return "// SPDX-License-Identifier: Apache-2.0\n// %s\n// Written by regenerate.py; names and numbers only. Do not edit.\n%s\n" % (about, "\n".join(lines))


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in out.splitlines() if len(line.split()) == 3 and line.split()[1] in "TW"}


def field_names(header_text, struct):
    body = re.search(r"struct\s+(?:__device_builtin__\s+)?%s(?:_st)?(?:_v1)?\s*\{(.*?)\n\}" % re.escape(struct), header_text, re.S)
    if body is None:
        body = re.search(r"typedef\s+(?:__device_builtin__\s+)?struct\s+(?:__device_builtin__\s+)?\w*\s*\{((?:[^{}]|\{[^{}]*\})*)\}\s*%s\s*;" % re.escape(struct), header_text, re.S)
    if body is None:
        return []
    text = body.group(1)
    # From the innermost: a structure or union with a name is a field of that name, one without gives its members to what is around it.
    inner = re.compile(r"\{([^{}]*)\}\s*(\w*)")
    while "{" in text:
        text = inner.sub(lambda found: " " + found.group(2) if found.group(2) else found.group(1), text, count=1)
    names = []
    for declaration in text.split(";"):
        m = re.search(r"(\w+)\s*(?:\[[^\]]*\]\s*)*$", declaration.strip())
        if m and m.group(1) not in ("union", "struct") and not declaration.strip().startswith("#"):
            names.append(m.group(1))
    return names


def run_cpp(include, source, extra=()):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.cpp")
        with open(path, "w", encoding="utf-8") as f:
            f.write(source)
        subprocess.run(["g++", "-w", "-I" + include, *extra, path, "-o", path + ".out"], check=True)
        return subprocess.run([path + ".out"], capture_output=True, text=True, check=True).stdout.splitlines()


def layouts(includes, crt, nvml):
    lines = []
    for generation, include in includes.items():
        text = without_comments(text_of(include + "/driver_types.h") + text_of(include + "/cuda.h"))
        prints = []
        for ours, (theirs, generations) in STRUCTS.items():
            if generation not in generations:
                continue
            prints.append('printf("SIZE(%s, %s, %%zu)\\n", sizeof(%s));' % (generation, ours, theirs))
            base = {"CUDA_MEMCPY2D": "CUDA_MEMCPY2D", "cudaLaunchConfig_t": "cudaLaunchConfig"}.get(theirs, theirs)
            for name in field_names(text, base):
                prints.append('printf("FIELD(%s, %s, %s, %%zu)\\n", offsetof(%s, %s));' % (generation, ours, name, theirs, name))
        source = '#include <cstdio>\n#include <cstddef>\n#include <cuda.h>\n#include <driver_types.h>\nint main(){%s}' % "\n".join(prints)
        lines += run_cpp(include, source, ["-idirafter", crt])
    text = without_comments(text_of(nvml))
    prints = []
    for ours, theirs in NVML_STRUCTS.items():
        prints.append('printf("SIZE(0, %s, %%zu)\\n", sizeof(%s));' % (ours, theirs))
        for name in field_names(text, theirs):
            prints.append('printf("FIELD(0, %s, %s, %%zu)\\n", offsetof(%s, %s));' % (ours, name, theirs, name))
    lines += run_cpp(os.path.dirname(nvml), "#include <cstdio>\n#include <cstddef>\n#include <nvml.h>\nint main(){%s}" % "\n".join(prints))
    return lines


def errors(includes, libraries):
    texts, names = {}, {}
    # The newest names win; values that only older generations have are kept.
    for library in libraries.values():
        runtime = ctypes.CDLL(library)
        runtime.cudaGetErrorName.restype = runtime.cudaGetErrorString.restype = ctypes.c_char_p
        for value in range(0, 1000):
            name = runtime.cudaGetErrorName(value).decode()
            if name != "unrecognized error code":
                names[value] = name
                texts[value] = runtime.cudaGetErrorString(value).decode()
    driver = {}
    for include in includes.values():
        for name, value in re.findall(r"\b(CUDA_(?:SUCCESS|ERROR_\w+))\s*=\s*(\d+)", without_comments(text_of(include + "/cuda.h"))):
            driver[int(value)] = name
    lines = []
    for value in sorted(set(names) | set(driver)):
        lines.append('E(%d, "%s", "%s", "%s")' % (value, names.get(value, ""), driver.get(value, ""), texts.get(value, "").replace('"', "'")))
    return lines


def enumerators(includes, header, enum, prefix):
    found = {}
    for include in includes.values():
        text = without_comments(text_of(include + "/" + header))
        body = re.search(r"enum\s+(?:__device_builtin__\s+)?%s\s*\{(.*?)\}" % enum, text, re.S).group(1)
        value = -1
        for item in body.split(","):
            m = re.match(r"\s*(\w+)\s*(?:=\s*(0x[0-9a-fA-F]+|\d+))?\s*$", item)
            if m:
                value = int(m.group(2), 0) if m.group(2) else value + 1
                found.setdefault(value, m.group(1))
                found[value] = m.group(1)
    return ["A(%d, %s)" % (v, n) for v, n in sorted(found.items()) if not n.endswith("_MAX") and not n.endswith("Max") and n.startswith(prefix)]


def driver_tables(includes):
    symbols, versions = set(), {}
    current = {}
    for generation, include in includes.items():
        cuda_h = text_of(include + "/cuda.h")
        bare = without_comments(cuda_h)
        symbols |= set(re.findall(r"CUresult\s+CUDAAPI\s+(cu\w+)\s*\(", bare))
        defines = dict()
        for name, value in re.findall(r"#\s*define\s+(cu[A-Z]\w*)\s+(\S+)", bare):
            value = re.sub(r"__CUDA_API_PT[SD][SZ]\((\w+)\)", r"\1", value)
            if value.startswith("cu") and not value.endswith(("_ptsz", "_ptds")):
                defines.setdefault(name, value)
            per_thread = re.search(r"#\s*define\s+%s\s+__CUDA_API_PT[SD]([SZ])\((\w+)\)" % name, bare)
            if per_thread:
                symbols.add(per_thread.group(2) + ("_ptsz" if "PTSZ" in per_thread.group(0) else "_ptds"))
        symbols |= set(defines.values())
        current = defines  # the newest generation's
        typedefs = without_comments(text_of(include + "/cudaTypedefs.h"))
        for name, version, thread in re.findall(r"PFN_(cu[A-Z]\w*?)_v(\d{4,5})(_ptsz|_ptds)?\s*\)", typedefs):
            versions.setdefault(name, {}).setdefault(int(version), set()).add(thread)
    declared = set(symbols)
    # Names that a "define" maps (cuMemAlloc -> cuMemAlloc_v2) exist unmapped as well in the library.
    symbols = {s for s in symbols if not s.startswith("cudbg")}
    points = []
    for name, by_version in sorted(versions.items()):
        newest = current.get(name, name)
        suffix = re.search(r"_v(\d+)$", newest)
        last = int(suffix.group(1)) if suffix and newest != name else 1
        while "%s_v%d" % (name, last + 1) in declared:  # declared, but no define leads to it: asked for by version alone
            last += 1
        # A per-thread variant that came later than its function is no new version of it.
        plain = {version: threads for version, threads in by_version.items() if "" in threads} or by_version
        thread = sorted(t for threads in by_version.values() for t in threads if t)
        ordered = sorted(plain)
        for back, version in enumerate(reversed(ordered)):
            number = last - back
            if number < 1:
                break
            symbol = name if number == 1 else "%s_v%d" % (name, number)
            symbols.add(symbol)
            thread_symbol = symbol + thread[0] if thread and (back == 0 or any(by_version[version] - {""})) else symbol
            symbols.add(thread_symbol)
            points.append((name, version, symbol, thread_symbol))
    return sorted(symbols), ['P("%s", %d, %s, %s)' % p for p in sorted(points)]


def tables(wheels, python=sys.executable):
    """What each committed file should hold, by name."""
    folders = {name: unpacked(requirement, wheels, python) for name, requirement in WHEELS.items()}
    includes = {generation: os.path.dirname(one(folders[generation], "include/cuda.h")) for generation in ("11", "12", "13")}
    libraries = {generation: one(folders[generation], "libcudart.so.*") for generation in includes}
    crt = os.path.dirname(os.path.dirname(one(folders["crt"], "crt/host_defines.h")))
    nvml_h = one(folders["nvml"], "nvml.h")
    runtime = set()
    for library in libraries.values():
        runtime |= exported(library)
    symbols, points = driver_tables(includes)
    nvml = set(re.findall(r"nvmlReturn_t\s+DECLDIR\s+(nvml\w+)\s*\(|const\s+DECLDIR\s+char\s*\*\s*(nvml\w+)\s*\(", without_comments(text_of(nvml_h))))
    nvml_names = {a or b for a, b in nvml} | {v for _, v in re.findall(r"#\s*define\s+(nvml[A-Z]\w+)\s+(nvml[A-Z]\w+_v\d+)\s*$", text_of(nvml_h), re.M)}
    structures = layouts(includes, crt, nvml_h)
    return {
        "runtime_functions.def": table(["F(%s)" % n for n in sorted(runtime)], "Every function that libcudart.so.11.0 (11.8), .12 or .13 exports."),
        "driver_functions.def": table(["F(%s)" % n for n in symbols], "Every function of the driver API (11.8 to 13), by symbol."),
        "driver_entry_points.def": table(points, "cuGetProcAddress: name, first CUDA version, symbol, symbol for per-thread default streams."),
        "nvml_functions.def": table(["F(%s)" % n for n in sorted(nvml_names)], "Every function of NVML, by symbol."),
        "errors.def": table(errors(includes, libraries), "Error codes: value, the runtime's name, the driver's name, text."),
        "device_attributes.def": table(enumerators(includes, "driver_types.h", "cudaDeviceAttr", "cudaDevAttr"), "cudaDeviceAttr (the driver's CUdevice_attribute has the same numbers)."),
        "device_properties.def": table([re.sub(r"DeviceProperties, ", "", line) for line in structures if " DeviceProperties," in line], "cudaDeviceProp by CUDA generation: SIZE(generation, bytes), FIELD(generation, name, offset)."),
        "layouts.def": table([line for line in structures if " DeviceProperties," not in line], "Sizes and offsets of structures by CUDA generation (0: NVML): SIZE(generation, ours, bytes), FIELD(generation, ours, name, offset)."),
    }


def differing(made):
    """Names of committed files that are not what was made."""
    wrong = []
    for name, text in made.items():
        path = os.path.join(HERE, name)
        if not os.path.exists(path) or text_of(path) != text:
            wrong.append(name)
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheels", required=True, help="where downloads are kept")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 where a table is out of date")
    args = parser.parse_args()
    made = tables(args.wheels)
    wrong = differing(made)
    for name in wrong:
        print(("out of date: " if args.check else "written: ") + name)
        if not args.check:
            with open(os.path.join(HERE, name), "w", encoding="utf-8") as file:
                file.write(made[name])
    return 1 if args.check and wrong else 0


if __name__ == "__main__":
    sys.exit(main())
