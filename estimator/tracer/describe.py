# SPDX-License-Identifier: Apache-2.0
# Run by gpumem-tracer with the job's Python: says which torch it would import, without importing it (that takes seconds).
# Prints NAME=VALUE lines for the shell to read; a line error=SENTENCE where there is nothing to compile for. With --without-cuda
# a build without CUDA will do.
import ast
import importlib.util
import os
import sys


def constants(path):
    """The top-level constants of torch/version.py, annotated or not."""
    found = {}
    with open(path, encoding="utf-8") as source:
        for node in ast.parse(source.read()).body:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
            for target in targets:
                if isinstance(target, ast.Name) and isinstance(node.value, ast.Constant):
                    found[target.id] = node.value.value
    return found


def uses_new_strings(library):
    """Whether libc10.so was built with the C++11 std::string: c10::Error's constructor has it in its mangled name."""
    with open(library, "rb") as file:
        return b"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx11" in file.read()


def describe():
    # As in "python train.py" from this directory: the program's own folder is not known here.
    sys.path[:] = [entry for entry in sys.path if os.path.realpath(entry or ".") != os.path.dirname(os.path.realpath(__file__))]
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return {"error": "%s has no torch" % sys.executable}
    root = list(spec.submodule_search_locations)[0]
    try:
        version = constants(os.path.join(root, "version.py"))
    except (OSError, SyntaxError) as error:
        return {"error": "torch in %s is not readable: %s" % (root, error)}
    if not version.get("cuda") and "--without-cuda" not in sys.argv[1:]:
        return {"error": "torch %s in %s was built without CUDA" % (version.get("__version__"), root)}
    include, library = os.path.join(root, "include"), os.path.join(root, "lib")
    for path in (os.path.join(include, "torch", "library.h"), os.path.join(library, "libc10.so")):
        if not os.path.exists(path):
            return {"error": "torch in %s has no %s: install its development files" % (root, path)}
    return {
        "version": version["__version__"],
        "revision": version.get("git_version", ""),
        "abi": "1" if uses_new_strings(os.path.join(library, "libc10.so")) else "0",
        "include": include,
        "library": library,
    }


for name, value in describe().items():
    print("%s=%s" % (name, str(value).replace("\n", " ")))
