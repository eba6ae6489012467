# SPDX-License-Identifier: Apache-2.0
# gpumem-tracer's caches, with a torch of a few files and a compiler that is a shell script.
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
TRACER = HERE.parents[1] / "estimator" / "tracer"
NEW_STRINGS = b"_ZN3c105ErrorC1ENS_14SourceLocationENSt7__cxx1112basic_string"


class Cache(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        top = self.top = pathlib.Path(self.place.name)
        (top / "data").mkdir()
        (top / "data" / "tracer").symlink_to(TRACER)
        self.program = top / "gpumem-tracer"
        text = (TRACER / "gpumem-tracer.in").read_text()
        self.program.write_text(text.replace("@pkgdatadir@", str(top / "data")).replace("@cachedir@", str(top / "shared")))
        self.program.chmod(0o755)
        self.torch = top / "site" / "torch"
        (self.torch / "include" / "torch").mkdir(parents=True)
        (self.torch / "include" / "torch" / "library.h").touch()
        (self.torch / "lib").mkdir()
        (self.torch / "lib" / "libc10.so").write_bytes(NEW_STRINGS)
        (self.torch / "__init__.py").write_text("raise RuntimeError('imported')\n")
        self.version("2.11.0+cu130", "'13.0'")
        # Says what it was asked for and makes the output of -o.
        self.compiler = top / "compiler"
        self.compiler.write_text('#!/bin/sh\necho "$@" >> "%s/calls"\nwhile [ "$1" != -o ]; do shift; done\nsleep 0.2\necho code > "$2"\n' % top)
        self.compiler.chmod(0o755)

    def tearDown(self):
        self.place.cleanup()

    def version(self, version, cuda):
        (self.torch / "version.py").write_text(
            "from typing import Optional\n__version__ = '%s'\ncuda: Optional[str] = %s\ngit_version = 'abc'\n" % (version, cuda))

    def command(self, *arguments):
        environment = dict(os.environ, PYTHONPATH=str(self.top / "site"), HOME=str(self.top / "home"), CXX=str(self.compiler))
        environment.pop("XDG_CACHE_HOME", None)
        return subprocess.Popen([str(self.program), *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def run_it(self, *arguments):
        process = self.command(*(arguments or [sys.executable]))
        out, err = process.communicate(timeout=60)
        return process.returncode, out.strip(), err.strip()

    def calls(self):
        path = self.top / "calls"
        return path.read_text().splitlines() if path.exists() else []

    def test_it_compiles_once_and_then_finds_what_it_has(self):
        first = self.run_it()
        self.assertEqual((first[0], first[2]), (0, ""))
        self.assertTrue(first[1].startswith(str(self.top / "home" / ".cache" / "gpumem" / "tracer")))
        self.assertEqual(pathlib.Path(first[1]).read_text(), "code\n")
        self.assertEqual(self.run_it(), first)
        self.assertEqual(len(self.calls()), 1)

    def test_torch_is_not_imported(self):
        self.assertEqual(self.run_it()[0], 0)  # importing this one raises

    def test_several_at_once_compile_once(self):
        processes = [self.command(sys.executable) for _ in range(6)]
        answers = {process.communicate(timeout=60)[0] for process in processes}
        self.assertEqual(len(answers), 1)
        self.assertTrue(all(process.returncode == 0 for process in processes))
        self.assertEqual(len(self.calls()), 1)

    def test_another_version_has_another_key(self):
        key = self.run_it("--print-key", sys.executable)
        self.version("2.12.0+cu130", "'13.0'")
        self.assertNotEqual(self.run_it("--print-key", sys.executable), key)
        self.assertEqual(self.calls(), [])

    def test_the_abi_of_strings_is_the_librarys(self):
        self.run_it()
        (self.torch / "lib" / "libc10.so").write_bytes(b"old")
        self.run_it()
        self.assertIn("-D_GLIBCXX_USE_CXX11_ABI=1", self.calls()[0])
        self.assertIn("-D_GLIBCXX_USE_CXX11_ABI=0", self.calls()[1])

    def test_no_torch_and_no_cuda_are_told_apart(self):
        self.version("2.11.0+cpu", "None")
        status, _, message = self.run_it()
        self.assertEqual(status, 3)
        self.assertIn("was built without CUDA", message)
        (self.torch / "__init__.py").unlink()
        self.torch.rename(self.top / "site" / "other")
        status, _, message = self.run_it()
        self.assertEqual(status, 3)
        self.assertIn("has no torch", message)

    def test_a_failing_compiler_leaves_nothing_and_its_error_is_shown(self):
        self.compiler.write_text("#!/bin/sh\necho 'tracer.cpp:1: error: no luck' >&2\nexit 1\n")
        status, out, message = self.run_it()
        self.assertEqual((status, out), (3, ""))
        self.assertIn("error: no luck", message)
        self.assertEqual(list((self.top / "home").rglob("*.so")), [])

    def test_a_cache_that_others_can_write_is_refused(self):
        cache = self.top / "mine"
        cache.mkdir()
        cache.chmod(0o775)
        status, _, message = self.run_it("--cache", str(cache), sys.executable)
        self.assertEqual(status, 3)
        self.assertIn("writable by others", message)

    def test_a_shared_cache_counts_only_if_it_is_roots_alone(self):
        key = self.run_it("--print-key", sys.executable)[1]
        shared = self.top / "shared" / "tracer"
        shared.mkdir(parents=True)
        (shared / (key + ".so")).write_text("shared\n")
        shared.chmod(0o777)
        self.assertFalse(self.run_it()[1].startswith(str(shared)))
        shared.chmod(0o755)
        self.assertEqual(self.run_it()[1].startswith(str(shared)), os.getuid() == 0)

    def test_wrong_usage_has_its_own_status(self):
        self.assertEqual(self.run_it("--cache")[0], 2)
        self.assertEqual(self.run_it("--wrong", sys.executable)[0], 2)


if __name__ == "__main__":
    unittest.main()
