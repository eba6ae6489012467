# SPDX-License-Identifier: Apache-2.0
# The shim's ranks: who is here, what they agree on, and an end of all at the same step. Needs no torch.
import os
import subprocess
import sys
import tempfile
import unittest

SHIM = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "estimator", "shim")

LOOK = "import sys; sys.path.insert(0, %r); from _gpumem_shim import ranks; print('here', flush=True); sys.stdin.readline(); print(ranks.all_here(%d), flush=True); sys.stdin.readline()"

STEP = """
import sys, time; sys.path.insert(0, %r)
from _gpumem_shim import ranks
rank, stable_from, pace = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
ranks.begin(rank, 2)
for step in range(1, 400):
    time.sleep(pace)
    if ranks.after_step(step, step >= stable_from):
        print(step, flush=True)
        ranks.ended(wait=True)
        break
"""


class Ranks(unittest.TestCase):
    def setUp(self):
        self.record = tempfile.TemporaryDirectory()
        self.addCleanup(self.record.cleanup)

    def start(self, program, *arguments, **variables):
        environment = {"PATH": os.environ["PATH"], "GPUMEM_RECORD": self.record.name, "MASTER_PORT": "29400", "PYTHONDONTWRITEBYTECODE": "1"}
        environment.update(variables)
        return subprocess.Popen([sys.executable, "-c", program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)

    def look(self, world, *environments):
        """What each of the processes says of a world of that size, all of them living."""
        processes = [self.start(LOOK % (SHIM, world), **environment) for environment in environments]
        for process in processes:  # the environment of one that is still being started cannot be read
            self.assertEqual(process.stdout.readline(), "here\n")
        for process in processes:
            process.stdin.write("\n")
            process.stdin.flush()
        answers = [process.stdout.readline().strip() for process in processes]
        for process in processes:
            process.communicate("\n")
        return answers

    def test_one_process_is_alone(self):
        self.assertEqual(self.look(4, {"RANK": "0"}), ["False"])

    def test_as_many_ranks_as_the_world_has_are_all_here(self):
        self.assertEqual(self.look(2, {"RANK": "0"}, {"RANK": "1"}), ["True", "True"])

    def test_tasks_of_slurm_are_told_apart_where_all_have_another_variable_in_common(self):
        common = {"OMPI_COMM_WORLD_RANK": "0"}
        self.assertEqual(self.look(2, {"SLURM_PROCID": "0", **common}, {"SLURM_PROCID": "1", **common}), ["True", "True"])

    def test_too_few_are_alone_and_all_of_them_believe_it(self):
        self.assertEqual(self.look(3, {"RANK": "0"}, {"RANK": "1"}), ["False", "False"])

    def test_ranks_of_another_rendezvous_do_not_count(self):
        self.assertEqual(self.look(2, {"RANK": "0"}, {"RANK": "1", "MASTER_PORT": "29401"}), ["False", "False"])

    def test_who_was_started_alone_does_not_look(self):
        self.assertEqual(self.look(2, {"RANK": "0", "GPUMEM_ALONE": "1"}, {"RANK": "1", "GPUMEM_ALONE": "1"}), ["False", "False"])

    def test_the_first_finding_holds_for_all(self):
        self.assertEqual(self.look(2, {"RANK": "0"}), ["False"])
        self.assertEqual(self.look(2, {"RANK": "0"}, {"RANK": "1"}), ["False", "False"])

    def test_all_end_after_the_same_step_which_none_had_passed(self):
        processes = [self.start(STEP % SHIM, str(rank), str(stable), str(pace)) for rank, stable, pace in ((0, 3, 0.001), (1, 20, 0.005))]
        steps = [int(process.communicate()[0]) for process in processes]
        self.assertEqual(steps[0], steps[1])
        self.assertGreaterEqual(steps[1], 21)


if __name__ == "__main__":
    unittest.main()
