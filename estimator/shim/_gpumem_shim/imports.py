# SPDX-License-Identifier: Apache-2.0
# Post-import hooks: one entry in sys.meta_path that costs a dictionary look-up for each import and leaves loaders as they are.
import sys

_waiting = {}  # module name -> list of (our module, function)


_looking = set()  # names that are being looked for: a finder may ask for the same name


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        # Being asked for is not being imported: many libraries look whether torch is there (importlib.util.find_spec) and leave it.
        if name not in _waiting or name in _looking:
            return None
        _looking.add(name)
        try:
            for finder in sys.meta_path:
                if finder is _Finder or not hasattr(finder, "find_spec"):
                    continue
                spec = finder.find_spec(name, path, target)
                if spec is not None:
                    if spec.loader is not None and hasattr(spec.loader, "exec_module"):
                        _wrap(name, spec.loader)
                    return spec
            return None  # another path may have it later
        finally:
            _looking.discard(name)


def _wrap(name, loader):
    original = loader.exec_module

    def exec_module(module):
        # The loader is used once for each module; it is left as it was found.
        try:
            del loader.exec_module
        except AttributeError:
            pass
        original(module)
        _call(_waiting.pop(name, ()), module)

    loader.exec_module = exec_module


def _call(calls, module):
    for place, function in calls:
        try:
            getattr(__import__(place, fromlist=[function]), function)(module)
        except Exception:
            pass


def after(name, place, function):
    """Calls place.function(module) once module `name` has been imported (at once if it has been)."""
    if name in sys.modules:
        _call([(place, function)], sys.modules[name])
        return
    _waiting.setdefault(name, []).append((place, function))
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
