#!/usr/bin/python3
"""Packs a build with deploy/bundle.sh, and uses the archive as somebody does
who has neither the build nor Debian's packages.

  bundle_test.py BUILD_DIR

The archive must be small enough, unpack with a plain tar, and be the same
whoever packs it: names sorted, one time, no owner. No file in it may need a
library that is neither in it nor glibc's, and none of CUDA's. A job must train
in a mount namespace whose root has nothing but the archive's content and glibc,
with LD_LIBRARY_PATH unset. tests/gpu.sh must say that there is no GPU. Exits with
77 where namespaces are not permitted, if all else passes.
"""

import functools
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
BUNDLE_SH = REPOSITORY / "deploy/bundle.sh"
SIZE_MAX = 48 << 20
GLIBC = re.compile(
    r"(ld-linux-x86-64|libc|libm|libmvec|libpthread|libdl|librt|libresolv|libutil|libanl)\.so\.\d+")
CUDA = re.compile(r"lib(cuda|cublas|cudnn|nccl|nvrtc|nvidia)")
DAEMONS = {"syncline-ps", "syncline-worker", "syncline-scheduler"}
EXIT_WITHOUT_GPU = 3
# An environment as of a user who has set nothing; no GPU, where there is one.
PLAIN = {"PATH": "/usr/bin:/bin", "CUDA_VISIBLE_DEVICES": ""}

# Makes a root of nothing but $LIBRARIES and what $BUNDLE has, and runs a program
# in it. Mounts end with the namespace.
IN_ROOT = r"""
set -e
mount -t tmpfs tmpfs "$ROOT"
cd "$ROOT"
mkdir -p lib64 lib proc dev/shm tmp opt/syncline
for library in $LIBRARIES; do cp -L "$library" lib/; done
mv lib/ld-linux-x86-64.so.2 lib64/
mount --rbind /proc proc
for device in null urandom zero; do
  touch dev/$device
  mount --bind /dev/$device dev/$device
done
mount -t tmpfs tmpfs dev/shm
mount --bind "$BUNDLE" opt/syncline
# chroot is outside: by its path, with the libraries that it has there.
exec chroot "$ROOT" "$@"
"""


def run(command, **options):
    return subprocess.run([str(part) for part in command], text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=600, check=False, **options)


def needed_by(file):
    """The libraries that an ELF file names, and its RUNPATH; None for others."""
    with open(file, "rb") as content:
        if content.read(4) != b"\x7fELF":
            return None
    said = run(["readelf", "-d", "-W", file]).stdout
    return (re.findall(r"\(NEEDED\).*\[(.*)\]", said),
            re.findall(r"\((?:RUNPATH|RPATH)\).*\[(.*)\]", said))


class BundleTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="syncline-bundle-")
        folder = pathlib.Path(cls.folder.name)
        cls.archive = folder / "made/bundle.tar.xz"
        # As quickly as it goes, and so larger than what is given away.
        cls.packed = run([BUNDLE_SH, "--build-dir", cls.build, "--out", cls.archive,
                          "--level", "0"])
        if cls.packed.returncode != 0:
            return
        (folder / "elsewhere").mkdir()
        subprocess.run(["tar", "xf", cls.archive, "-C", folder / "elsewhere"], check=True)
        cls.root, = (folder / "elsewhere").iterdir()

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def setUp(self):
        self.assertEqual(self.packed.returncode, 0, self.packed.stdout)

    def test_is_small_and_leaves_nothing_beside_it(self):
        self.assertLessEqual(self.archive.stat().st_size, SIZE_MAX)
        self.assertEqual([path.name for path in self.archive.parent.iterdir()],
                         [self.archive.name])

    def test_names_times_and_owners_are_fixed(self):
        with tarfile.open(self.archive) as archive:
            members = archive.getmembers()
        names = [member.name.split("/") for member in members]
        self.assertEqual(names, sorted(names))
        self.assertEqual(len({member.mtime for member in members}), 1)
        for member in members:
            self.assertEqual((member.uid, member.gid, member.uname, member.gname),
                             (0, 0, "", ""), member.name)
            executable = member.isdir() or member.mode & 0o100
            self.assertEqual(member.mode, 0o755 if executable else 0o644, member.name)

    def test_everything_is_there(self):
        programs = {path.name for path in (self.root / "bin").iterdir()}
        self.assertEqual(programs, DAEMONS | {"synctl", "syncline-bench"})
        for name in ("LICENSE", "tests/gpu.sh", "tests/gpu_test",
                     "deploy/examples/mnist/digits.textproto"):
            self.assertTrue((self.root / name).is_file(), name)
        readme = (self.root / "README").read_text()
        self.assertEqual(len(readme.splitlines()), 11)
        version = (self.root / "VERSION").read_text()
        for key in ("version", "commit", "date", "compiler", "cuda", "glibc"):
            self.assertRegex(version, rf"(?m)^{key}: +\S")
        licenses = {path.name for path in (self.root / "licenses").iterdir()}
        self.assertLessEqual({"libgrpc29", "libgcc-s1", "libstdc++6", "libgtest-dev"},
                             licenses)

    def test_needs_glibc_and_nothing_else(self):
        libraries = {path.name for path in (self.root / "lib").iterdir()}
        files = [path for path in self.root.rglob("*") if path.is_file() and needed_by(path)]
        self.assertGreater(len(files), len(libraries))
        used = set()
        for file in files:
            needed, runpath = needed_by(file)
            used.update(needed)
            for library in needed:
                self.assertIsNone(CUDA.match(library), f"{file} needs {library}")
                self.assertTrue(library in libraries or GLIBC.fullmatch(library),
                                f"{file} needs {library}")
            in_lib = file.parent.name == "lib"
            self.assertEqual(runpath, ["$ORIGIN" if in_lib else "$ORIGIN/../lib"], file)
        self.assertLessEqual(libraries, used)
        self.assertFalse([name for name in libraries if GLIBC.fullmatch(name)])

    def test_without_a_gpu_its_tests_say_so(self):
        said = run([self.root / "tests/gpu.sh"], env=PLAIN, cwd=self.folder.name)
        self.assertEqual(said.returncode, EXIT_WITHOUT_GPU, said.stdout)
        self.assertRegex(said.stdout, r"\Agpu\.sh: no GPU: .+; nothing was tested\n\Z")

    def test_trains_where_there_is_only_glibc(self):
        if run(self.unshare(["true"])).returncode != 0:
            type(self).is_skipped = True
            self.skipTest("mount namespaces are not permitted here")
        listed = run(self.in_root("/lib64/ld-linux-x86-64.so.2", "--list",
                                  "/opt/syncline/bin/syncline-worker"))
        self.assertEqual(listed.returncode, 0, listed.stdout)
        self.assertNotIn("/usr/lib", listed.stdout)
        job = run(self.in_root(
            "/opt/syncline/bin/synctl", "local",
            "/opt/syncline/deploy/examples/mnist/digits.textproto", "--ps", "1",
            "--workers", "2", "--out", "/tmp/out", "--set", "data.train.digits.count=2000",
            "--set", "training.epochs=2", "--set", "resources.ps=1", "--set",
            "resources.workers=2"))
        self.assertEqual(job.returncode, 0, job.stdout)
        self.assertIn("/tmp/out/trained.onnx", job.stdout)
        accuracy = [float(number) for number in re.findall(r"accuracy[ =:]+([0-9.]+)", job.stdout)]
        self.assertTrue(accuracy, job.stdout)
        self.assertGreater(accuracy[-1], 0.5, job.stdout)
        for program in ("syncline-bench", "syncline-ps", "syncline-scheduler"):
            said = run(self.in_root(f"/opt/syncline/bin/{program}", "--help"))
            self.assertEqual(said.returncode, 0, said.stdout)
        said = run(self.in_root("/opt/syncline/tests/gpu_test"))
        self.assertEqual(said.returncode, EXIT_WITHOUT_GPU, said.stdout)

    @staticmethod
    def unshare(command):
        user = [] if os.geteuid() == 0 else ["--map-root-user"]
        return ["unshare", "--mount", *user, *command]

    @functools.lru_cache
    def glibc_of_this_machine(self):
        """The files of glibc that something in the bundle needs."""
        said = run(["ldd", *(path for path in self.root.rglob("*")
                             if path.is_file() and needed_by(path))]).stdout
        found = {os.path.basename(path): path
                 for path in sorted(set(re.findall(r"(/\S+) \(0x", said)))}
        return [path for name, path in found.items() if GLIBC.fullmatch(name)]

    def in_root(self, *command):
        """The command line that runs `command` in the root of IN_ROOT."""
        root = pathlib.Path(self.folder.name) / "root"
        root.mkdir(exist_ok=True)
        variables = {"ROOT": root, "BUNDLE": self.root,
                     "LIBRARIES": " ".join(self.glibc_of_this_machine()), **PLAIN}
        chroot = shutil.which("chroot", path="/usr/sbin:/sbin:/usr/bin:/bin")
        return ["env", "-i", *(f"{key}={value}" for key, value in variables.items()),
                *self.unshare(["sh", "-c", IN_ROOT.replace("exec chroot", f"exec {chroot}"),
                               "sh", *command])]


class MistakesTest(unittest.TestCase):
    def fails_with(self, arguments, *texts):
        said = run([BUNDLE_SH, *arguments])
        self.assertEqual(said.returncode, 1, said.stdout)
        for text in texts:
            self.assertIn(text, said.stdout)

    def test_say_what_to_do(self):
        with tempfile.TemporaryDirectory() as folder:
            self.fails_with(["--build-dir", folder], "is no build folder", "cmake --preset release")
            pathlib.Path(folder, "CMakeCache.txt").write_text("SYNCLINE_BUILD_TESTS:BOOL=ON\n")
            self.fails_with(["--build-dir", folder], "lacks: synctl syncline-scheduler",
                            f"cmake --build {folder} --target synctl")
        self.fails_with(["--build"], "no option '--build'", "--help")
        self.fails_with(["--out"], "--out wants a value")
        self.fails_with(["--level", "fast"], "--level is a number from 0 to 9, not 'fast'")

    def test_help(self):
        said = run([BUNDLE_SH, "--help"])
        self.assertEqual(said.returncode, 0)
        self.assertIn("--build-dir DIR", said.stdout)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    BundleTest.build = pathlib.Path(sys.argv.pop()).resolve()
    BundleTest.is_skipped = False
    program = unittest.main(exit=False, verbosity=2)
    if not program.result.wasSuccessful():
        sys.exit(1)
    sys.exit(77 if BundleTest.is_skipped else 0)


if __name__ == "__main__":
    main()
