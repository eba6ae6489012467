# SPDX-License-Identifier: Apache-2.0
# Post-import hooks: one entry in sys.meta_path that costs a dictionary look-up for each import and leaves loaders as they are.
import sys

_waiting = {}  # module name -> list of (our module, function)


class _Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name not in _waiting:
            return None
        calls = _waiting.pop(name)
        for finder in sys.meta_path:
            if finder is _Finder or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is None or not hasattr(spec.loader, "exec_module"):
                    return spec
                _wrap(spec.loader, calls)
                return spec
        _waiting[name] = calls  # not there: another path may have it later
        return None


def _wrap(loader, calls):
    original = loader.exec_module

    def exec_module(module):
        # The loader is used once for each module; it is left as it was found.
        try:
            del loader.exec_module
        except AttributeError:
            pass
        original(module)
        _call(calls, module)

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
