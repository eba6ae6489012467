# SPDX-License-Identifier: Apache-2.0
# The shim, run as a probe runs it (PYTHONPATH) in Pythons of its own, with fake_torch in place of torch.
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest

HERE = pathlib.Path(__file__).resolve().parent
SHIM = HERE.parents[1] / "estimator" / "shim"


class Shim(unittest.TestCase):
    def setUp(self):
        self.place = tempfile.TemporaryDirectory()
        self.directory = pathlib.Path(self.place.name)
        self.record = self.directory / "record"
        self.record.mkdir()

    def tearDown(self):
        self.place.cleanup()

    def run_python(self, program, path=(), **environment):
        variables = {name: value for name, value in os.environ.items() if not name.startswith(("GPUMEM_", "PYTHON", "FAKE_"))}
        variables.update(GPUMEM_RECORD=str(self.record), FAKE_TORCH_CUDA="13.0", PYTHONDONTWRITEBYTECODE="1")
        variables["PYTHONPATH"] = os.pathsep.join([str(SHIM), *map(str, path), str(HERE / "fake_torch")])
        variables.update(environment)
        return subprocess.run([sys.executable, "-c", textwrap.dedent(program)], env=variables, capture_output=True, text=True, timeout=60)

    def events(self, kind=None):
        lines = [json.loads(line) for file in self.record.glob("process-*.jsonl") for line in file.read_text().splitlines()]
        return [line for line in lines if kind in (None, line["event"])]

    def test_a_python_without_torch_writes_nothing_and_imports_nothing_of_ours(self):
        ran = self.run_python("import sys, json; print(sorted(m for m in sys.modules if 'gpumem' in m))")
        self.assertEqual(ran.stdout.strip(), "['_gpumem_shim', '_gpumem_shim.files', '_gpumem_shim.imports']")
        self.assertEqual(self.events(), [])

    def test_without_a_record_the_shim_is_not_there(self):
        ran = self.run_python("import sys, torch; print([m for m in sys.modules if 'gpumem' in m])", GPUMEM_RECORD="")
        self.assertEqual(ran.stdout.strip(), "[]")

    def test_importing_torch_is_recorded_with_its_versions(self):
        self.assertEqual(self.run_python("import torch").returncode, 0)
        (event,) = self.events("torch")
        self.assertEqual((event["version"], event["cuda"], event["cudnn"]), ("9.9.9+fake", "13.0", 91900))
        self.assertEqual(event["tracer"], "absent: GPUMEM_TRACER is not set")

    def test_looking_whether_torch_is_there_does_not_hide_its_import(self):
        ran = self.run_python("""
            import importlib.util
            loader = importlib.util.find_spec("torch").loader
            import torch
            print(type(loader).__name__, "exec_module" in vars(torch.__spec__.loader))
        """)
        self.assertEqual(ran.stdout, "SourceFileLoader False\n")
        self.assertEqual(len(self.events("torch")), 1)

    def test_files_that_the_program_reads_are_recorded_once_by_their_source(self):
        (self.directory / "model.py").write_text("x = 1\n")
        (self.directory / "train.py").write_text("import model, torch\nfor _ in range(2): open('data.json')\nopen('out', 'w')\n")
        (self.directory / "data.json").write_text("{}")
        variables = dict(os.environ, GPUMEM_RECORD=str(self.record), FAKE_TORCH_CUDA="13.0")
        variables["PYTHONPATH"] = os.pathsep.join([str(SHIM), str(HERE / "fake_torch")])
        for _ in range(2):  # the second time the module comes from __pycache__
            subprocess.run([sys.executable, "train.py"], env=variables, cwd=self.directory, check=True, timeout=60)
        for file in self.record.glob("process-*.jsonl"):
            paths = [line["path"] for line in map(json.loads, file.read_text().splitlines()) if line["event"] == "file"]
            mine = [path for path in paths if path.startswith(str(self.directory))]
            self.assertEqual(sorted(mine), sorted(str(self.directory / name) for name in ("train.py", "model.py", "data.json")))

    def test_a_tracer_that_cannot_be_loaded_is_named_and_the_program_runs_on(self):
        ran = self.run_python("import torch; print('ran')", GPUMEM_TRACER="/nonexistent.so")
        self.assertEqual(ran.stdout, "ran\n")
        self.assertRegex(self.events("torch")[0]["tracer"], "^absent: .*nonexistent")

    def test_a_build_without_cuda_says_so(self):
        self.run_python("import torch", FAKE_TORCH_CUDA="")
        self.assertIsNone(self.events("torch")[0]["cuda"])
        self.assertEqual(len(self.events()), 1)

    def test_the_users_sitecustomize_runs_and_is_the_one_that_is_imported(self):
        theirs = self.directory / "theirs"
        theirs.mkdir()
        (theirs / "sitecustomize.py").write_text("value = 42\n")
        ran = self.run_python("import sitecustomize, torch; print(sitecustomize.value, sitecustomize.__file__)", path=[theirs])
        self.assertEqual(ran.stdout.split(), ["42", str(theirs / "sitecustomize.py")])
        self.assertEqual(len(self.events("torch")), 1)

    def test_an_error_in_the_users_sitecustomize_is_reported_as_without_us(self):
        theirs = self.directory / "theirs"
        theirs.mkdir()
        (theirs / "sitecustomize.py").write_text("raise RuntimeError('mine')\n")
        ran = self.run_python("print('ran')", path=[theirs])
        self.assertEqual(ran.stdout, "ran\n")
        self.assertIn("mine", ran.stderr)

    def test_a_missing_module_inside_torch_reaches_the_program_as_its_own_error(self):
        broken = self.directory / "broken" / "torch"
        broken.mkdir(parents=True)
        (broken / "__init__.py").write_text("import no_such_module_anywhere\n")
        ran = self.run_python("import torch", path=[broken.parent])
        self.assertIn("no_such_module_anywhere", ran.stderr)
        self.assertEqual(ran.returncode, 1)

    STEPS = """
        import torch
        optimizer = torch.optim.Optimizer()
        for step in range(200):
            torch.figures.update(allocated=%s, reserved=2 << 20)
            optimizer.step()
        print('end')
    """

    def test_a_stable_peak_ends_the_program_with_status_0(self):
        ran = self.run_python(self.STEPS % "1 << 20", GPUMEM_SHIM_STABLE_STEPS="5")
        self.assertEqual((ran.returncode, ran.stdout), (0, ""))
        (stop,) = self.events("stop")
        self.assertEqual((stop["reason"], stop["n"], stop["status"]), ("stable", 6, 0))
        self.assertEqual(stop["devices"]["0"]["peak_reserved"], 2 << 20)

    def test_a_growing_peak_does_not_end_the_program(self):
        ran = self.run_python(self.STEPS % "step << 22", GPUMEM_SHIM_STABLE_STEPS="5")
        self.assertEqual(ran.stdout, "end\n")
        self.assertEqual(self.events("stop")[0]["reason"], "exit")

    def test_a_list_of_losses_does_not_look_like_a_growing_peak(self):
        ran = self.run_python(self.STEPS % "(8 << 20) + 512 * step", GPUMEM_SHIM_STABLE_STEPS="5")
        self.assertEqual((ran.stdout, self.events("stop")[0]["reason"]), ("", "stable"))

    # What a program has made and does not use yet: it gets eight times the steps, and what it did not begin in them is named.
    def test_frozen_parameters_are_given_time_to_be_trained(self):
        program = """
            import torch
            backbone, head = torch.nn.Parameter(1 << 20, requires_grad=False), torch.nn.Parameter(10)
            optimizer = torch.optim.Optimizer([backbone, head])
            for step in range(200):
                if step == %d:
                    backbone.requires_grad = True
                torch.figures.update(allocated=9 << 20 if backbone.requires_grad else 5 << 20, reserved=9 << 20)
                optimizer.step()
        """
        self.run_python(program % 30, GPUMEM_SHIM_STABLE_STEPS="5")
        (stop,) = self.events("stop")
        self.assertEqual((stop["reason"], stop["n"]), ("stable", 36))  # trained from the 31st on, and nothing is frozen any more
        self.assertEqual(self.events("note"), [])

    def test_parameters_that_stay_frozen_are_named(self):
        program = "import torch\nother = torch.optim.Optimizer([torch.nn.Parameter(1 << 20, requires_grad=False)])\nother.step()\n"
        self.run_python(program + textwrap.dedent(self.STEPS % "1 << 20"), GPUMEM_SHIM_STABLE_STEPS="5")
        self.assertEqual(self.events("stop")[0]["n"], 41)
        (note,) = self.events("note")
        self.assertEqual((note["kind"], note["bytes"]), ("frozen", 4 << 20))

    def test_an_optimizer_that_has_not_stepped_is_waited_for_and_a_wrapper_is_not(self):
        program = """
            import torch
            one, other = torch.nn.Parameter(10), torch.nn.Parameter(10)
            wrapped = torch.optim.Optimizer([one])
            wrapper, late = torch.optim.Optimizer([one]), torch.optim.Optimizer([%s])
            torch.figures.update(allocated=1 << 20, reserved=2 << 20)
            for step in range(200):
                wrapped.step()
        """
        self.run_python(program % "one", GPUMEM_SHIM_STABLE_STEPS="5")
        self.assertEqual((self.events("stop")[0]["n"], self.events("note")), (6, []))
        for file in self.record.glob("process-*.jsonl"):
            file.unlink()
        self.run_python(program % "other", GPUMEM_SHIM_STABLE_STEPS="5")
        self.assertEqual(self.events("stop")[0]["n"], 41)
        self.assertEqual([(note["kind"], note["count"]) for note in self.events("note")], [("idle-optimizer", 1)])

    def test_the_early_end_can_be_forbidden(self):
        ran = self.run_python(self.STEPS % "1 << 20", GPUMEM_SHIM_STOP="0")
        self.assertEqual(ran.stdout, "end\n")
        self.assertEqual([event["n"] for event in self.events("step")], list(range(1, 65)) + [128])

    def test_a_program_that_uses_no_device_memory_is_not_ended(self):
        ran = self.run_python((self.STEPS % "0").replace("2 << 20", "0"), GPUMEM_SHIM_STABLE_STEPS="5")
        self.assertEqual(ran.stdout, "end\n")

    def test_output_is_flushed_before_the_early_end(self):
        ran = self.run_python("print('before', end='')\n" + textwrap.dedent(self.STEPS % "1 << 20"))
        self.assertEqual(ran.stdout, "before")

    def test_a_peak_that_the_program_resets_is_kept(self):
        self.run_python("""
            import torch
            torch.figures.update(allocated=5 << 20, reserved=8 << 20)
            torch._C._cuda_resetPeakMemoryStats(0)
        """)
        self.assertEqual(self.events("stop")[0]["devices"]["0"]["peak_reserved"], 8 << 20)

    def test_two_optimizers_of_one_iteration_count_once(self):
        self.run_python("""
            import torch
            a, b = torch.optim.Optimizer(), torch.optim.Optimizer()
            for step in range(3):
                a.step()
                b.step()
        """)
        self.assertEqual(self.events("stop")[0]["n"], 3)

    def test_an_exception_is_recorded_with_its_message(self):
        ran = self.run_python("import torch; raise RuntimeError('no luck')")
        self.assertEqual(ran.returncode, 1)
        stop = self.events("stop")[0]
        self.assertEqual((stop["reason"], stop["error"]), ("exception", "RuntimeError: no luck"))

    def test_a_process_that_is_killed_leaves_its_steps(self):
        self.run_python("""
            import os, signal, torch
            torch.figures.update(allocated=1 << 20, reserved=2 << 20)
            torch.optim.Optimizer().step()
            os.kill(os.getpid(), signal.SIGKILL)
        """)
        self.assertEqual(self.events("step")[0]["devices"]["0"]["peak_allocated"], 1 << 20)
        self.assertEqual(self.events("stop"), [])

    def test_a_forked_child_has_a_record_of_its_own(self):
        self.run_python("""
            import os, torch
            optimizer = torch.optim.Optimizer()
            optimizer.step()
            child = os.fork()
            optimizer.step()
            if child == 0: os._exit(0)
            os.waitpid(child, 0)
        """)
        self.assertEqual(len(list(self.record.glob("process-*.jsonl"))), 2)
        self.assertEqual(sorted(event["n"] for event in self.events("step")), [1, 1, 2])

    # Epochs. A batch is a tensor of some length.
    LOADER = """
        import torch
        from torch.utils.data import DataLoader
        def epoch(loader, optimizer=None, every=1):
            seen = []
            for number, batch in enumerate(loader, 1):
                seen.append(batch.shape[0])
                if optimizer:
                    torch._C._autograd.nodes += 1
                    if number % every == 0: optimizer.step()
            return seen
        batches = lambda lengths: [torch.Tensor(n) for n in lengths]
        optimizer = torch.optim.Optimizer()
    """

    def epochs(self, program, **environment):
        ran = self.run_python(textwrap.dedent(self.LOADER) + textwrap.dedent(program), **environment)
        self.assertEqual(ran.returncode, 0, ran.stderr)
        return ran.stdout.splitlines()

    def test_a_long_epoch_ends_after_a_few_batches_and_its_length_is_unchanged(self):
        self.assertEqual(self.epochs("l = DataLoader(batches([7] * 1250)); print(len(l), len(epoch(l)), len(epoch(l)))"), ["1250 6 6"])
        (note,) = self.events("note")
        self.assertEqual((note["kind"], note["text"]), ("epoch", "epochs of a DataLoader were shortened to 6 of 1250 batches"))

    def test_the_largest_batch_of_those_looked_at_comes_third_and_the_others_in_order(self):
        self.assertEqual(self.epochs("print(epoch(DataLoader(batches([3, 1, 4, 1, 5, 9, 2, 6, 5, 3]))))"), ["[3, 1, 9, 4, 1, 5]"])

    def test_how_many_come_before_the_largest_is_a_setting(self):
        program = "print(epoch(DataLoader(batches([3, 1, 4, 1, 5, 9, 2, 6, 5, 3]))))"
        self.assertEqual(self.epochs(program, GPUMEM_SHIM_BEFORE_LARGEST="0"), ["[9, 3, 1, 4, 1, 5]"])

    def test_another_shape_follows_the_largest_where_too_few_would_be_trained(self):
        self.assertEqual(self.epochs("print(epoch(DataLoader(batches([7, 7, 7, 2, 7, 5, 7, 7, 3]))))"), ["[7, 7, 7, 3, 5, 2]"])

    def test_which_batch_comes_when_is_recorded_where_they_differ(self):
        self.epochs("l = DataLoader(batches([3, 1, 4, 1, 5, 9, 2, 6, 5, 3]))\nfor _ in range(2): epoch(l)\nepoch(DataLoader(batches([7] * 50)))")
        (looked,) = self.events("batches")
        self.assertEqual([shapes[0][0] for shapes in looked["shapes"]], [3, 1, 4, 1, 5, 9, 2, 6, 5, 3])
        came = [(event["n"], event["shapes"] and event["shapes"][0][0]) for event in self.events("batch")]
        self.assertEqual(came, list(enumerate([3, 1, 9, 4, 1, 5, None, 3, 1, 4, 1, 5, 9, None], 1)))

    def test_what_is_not_looked_at_does_not_come_early(self):
        self.assertEqual(self.epochs("print(epoch(DataLoader(batches([3, 1, 4, 1, 5, 9, 2]))))", GPUMEM_SHIM_LOOKAHEAD="3"), ["[3, 1, 5, 4, 1, 9]"])

    def test_batches_that_are_alike_are_not_looked_at_far_ahead(self):
        program = """
            class Counted(list):
                taken = 0
                def __iter__(self):
                    for item in list.__iter__(self):
                        Counted.taken += 1
                        yield item
            iterator = iter(DataLoader(Counted(batches([7] * 100))))
            [next(iterator) for _ in range(3)]
            print(Counted.taken)
        """
        self.assertEqual(self.epochs(program), ["4"])

    def test_batches_on_the_device_are_not_looked_at_ahead(self):
        self.assertEqual(self.epochs("print(epoch(DataLoader([torch.Tensor(n, True) for n in range(1, 20)])))"), ["[1, 2, 3, 4, 5, 6]"])

    def test_short_loaders_are_untouched(self):
        self.assertEqual(self.epochs("print(epoch(DataLoader(batches([1, 2, 3, 4, 5, 6]))))"), ["[1, 2, 3, 4, 5, 6]"])
        self.assertEqual(self.events("note"), [])

    def test_loaders_without_a_length_are_shortened(self):
        program = """
            class Stream(torch.utils.data.IterableDataset):
                def __iter__(self):
                    return iter(batches([5] * 40))
            print(len(epoch(DataLoader(Stream()))))
        """
        self.assertEqual(self.epochs(program), ["6"])

    def test_persistent_workers_begin_every_epoch_anew(self):
        self.assertEqual(self.epochs("l = DataLoader(batches([7] * 50), True); print(len(epoch(l)), len(epoch(l)), len(epoch(l)))"), ["6 6 6"])

    def test_gradient_accumulation_reaches_two_optimizer_steps(self):
        self.assertEqual(self.epochs("print(len(epoch(DataLoader(batches([7] * 500)), optimizer, every=8)))"), ["16"])

    def test_validation_with_functions_of_the_programs_own_is_shortened(self):
        program = """
            def validate():
                given = 0
                for batch in DataLoader(batches([7] * 500)):
                    torch._C._autograd.nodes += 1  # DataParallel: a node without a graph
                    given += 1
                return given
            torch._C._autograd.enabled = False
            print(validate())
        """
        self.assertEqual(self.epochs(program), ["6"])

    def test_shortening_can_be_switched_off(self):
        self.assertEqual(self.epochs("print(len(epoch(DataLoader(batches([7] * 50)))))", GPUMEM_SHIM_EPOCH_BATCHES="0"), ["50"])

    def test_the_early_end_waits_for_validation_and_the_next_epoch(self):
        program = """
            torch.figures.update(allocated=1 << 20, reserved=2 << 20)
            train, valid = DataLoader(batches([7] * 100)), DataLoader(batches([7] * 100))
            for number in range(9):
                epoch(train, optimizer)
                epoch(valid)
                print('validated', number, flush=True)
        """
        self.assertEqual(self.epochs(program, GPUMEM_SHIM_STABLE_STEPS="2"), ["validated 0"])
        self.assertEqual(self.events("stop")[0]["n"], 7)


if __name__ == "__main__":
    unittest.main()
