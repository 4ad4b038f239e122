#!/usr/bin/python3
"""tests/gpu.sh reports what the programs that it runs do. Programs that play a
GPU's tests are shell scripts here: one that passes, fails, hangs or skips.

  gpu_script_test.py
"""

import pathlib
import re
import subprocess
import tempfile
import unittest

GPU_SH = pathlib.Path(__file__).resolve().parents[1] / "gpu.sh"
PASSES = 'echo "[  PASSED  ] 7 tests."; echo "[  SKIPPED ] 2 tests, listed below:"'
DESCRIBES = 'if [ "$1" = --describe ]; then echo "Some GPU, 80 GiB"; exit 0; fi\n'
PROGRAMS = {
    "tests/gpu_test": DESCRIBES + PASSES,
    "tests/training_accuracy_test": PASSES,
    "tests/gpt_test":
        'echo "tests/x.cc:5: Skipped"; echo "no data at here"; echo "[  PASSED  ] 0 tests."',
    "tests/ctr_accuracy_test": 'echo "$SYNCLINE_TEST_DEVICE"; ' + PASSES,
    "bin/syncline-worker": "echo --device",
    "bin/syncline-bench": "echo a table",
}


class GpuScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        self.report = self.root / "report.txt"
        for name, text in PROGRAMS.items():
            self.write(name, text)

    def write(self, name, text):
        path = self.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("#!/bin/sh\n" + text + "\n")
        path.chmod(0o755)

    def run_script(self, *arguments):
        return subprocess.run(
            [GPU_SH, "--build-dir", self.root, "--report", self.report, "--cuda",
             self.root / "no-cuda", *arguments],
            text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
            timeout=120, env={"PATH": "/usr/bin:/bin"})

    def assert_line(self, verdict, text):
        self.assertRegex(self.report.read_text(),
                         rf"(?m)^{verdict} +[0-9.]+ s  .*{re.escape(text)}")

    def test_all_pass(self):
        said = self.run_script()
        self.assertEqual(said.returncode, 0, said.stdout)
        report = self.report.read_text()
        self.assertRegex(report, r"(?m)^gpu: +Some GPU, 80 GiB$")
        self.assertRegex(report, r"(?m)^date: +20\d\d-\d\d-\d\d \d\d:\d\d UTC$")
        self.assert_line("passed", "operators, against this machine's processors "
                                   "(7 passed, 2 skipped)")
        self.assert_line("passed", "job: DLRM")
        self.assert_line("skipped", "compute-sanitizer: it is not installed")
        self.assert_line("skipped", "job: GPT, Shakespeare: no data at here")
        self.assert_line("skipped", "MNIST: no mnist/ in ''; name its folder with --data")
        self.assertIn("    a table", report)
        self.assertRegex(report, r"all 7 checks passed, 3 skipped, in \d+ s\n\Z")
        logs = [path.read_text() for path in (self.root / "report.txt.logs").iterdir()]
        self.assertTrue([log for log in logs if log.startswith("cuda:0\n")])

    def test_without_cudnn_jobs_have_own_convolutions(self):
        says = 'echo "convolutions are $SYNCLINE_TEST_CONVOLUTIONS"; ' + PASSES
        self.write("tests/training_accuracy_test", says)
        for found, used in (("none", "own"), ("cuDNN 9.19.0", "")):
            self.write("tests/gpu_test", DESCRIBES.replace(
                "80 GiB", f"80 GiB, convolutions: {found}") + PASSES)
            said = self.run_script()
            self.assertEqual(said.returncode, 0, said.stdout)
            logs = [path.read_text() for path in (self.root / "report.txt.logs").iterdir()]
            self.assertTrue([log for log in logs
                             if log.startswith(f"convolutions are {used}\n")])

    def test_a_failure_is_shown(self):
        self.write("tests/gpu_test",
                   DESCRIBES + 'echo "Softmax is wrong"; echo "[  FAILED  ] 1 test, listed below:"'
                               "; exit 1")
        said = self.run_script()
        self.assertEqual(said.returncode, 1, said.stdout)
        self.assert_line("FAILED", "the GPU as a device (1 failed)")
        self.assertIn("    | Softmax is wrong", self.report.read_text())
        self.assertIn("4 of 7 checks FAILED", self.report.read_text())

    def test_jobs_wait_for_the_flag(self):
        self.write("bin/syncline-worker", "echo --threads")
        said = self.run_script()
        self.assertEqual(said.returncode, 0, said.stdout)
        self.assert_line("skipped", "this syncline-worker has no --device yet")
        self.assertNotIn("job: ", self.report.read_text())

    def test_without_a_gpu(self):
        self.write("tests/gpu_test", 'echo "gpu_test: no GPU: there is none"; exit 3')
        said = self.run_script()
        self.assertEqual((said.returncode, said.stdout),
                         (3, "gpu.sh: no GPU: there is none; nothing was tested\n"))
        self.assertFalse(self.report.exists())

    def test_a_gpu_that_cannot_be_used_is_a_failure(self):
        self.write("tests/gpu_test", 'echo "gpu_test: no GPU: the driver is too old"; exit 1')
        said = self.run_script()
        self.assertEqual((said.returncode, said.stdout),
                         (1, "gpu.sh: the GPU cannot be used: the driver is too old\n"))

    def test_mistakes(self):
        for arguments, text in ((["--what"], "no option '--what'"), (["--data"], "wants a value")):
            said = self.run_script(*arguments)
            self.assertEqual(said.returncode, 2)
            self.assertIn(text, said.stdout)
        said = subprocess.run([GPU_SH], text=True, stderr=subprocess.PIPE, check=False)
        self.assertEqual(said.returncode, 2)
        self.assertIn("run this from a bundle", said.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
