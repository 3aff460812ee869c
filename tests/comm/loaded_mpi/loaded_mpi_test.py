"""Tests the choice of the MPI that the Python package loads, from the environment that a launcher leaves and the libraries
that a machine has. Libraries and plugins are pretended: they print their names.

usage: loaded_mpi_test.py FOLDER
FOLDER: has the program with both plugins, and openmpi/ and mpich/, each with a library
"""

import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(sys.argv[1])
PROGRAM = FOLDER / "loaded_mpi_program"
OPEN_MPI, MPICH = FOLDER / "openmpi/libmpi.so.40", FOLDER / "mpich/libmpi.so.12"
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith(("OMPI_", "PMI", "SLURM_", "LD_"))}
# The variables that each launcher sets for its ranks, as far as they count.
OF_OPEN_MPI = {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0", "PMIX_RANK": "0"}
OF_HYDRA = {"PMI_SIZE": "2", "PMI_RANK": "0", "PMI_FD": "9"}
STEP = {"SLURM_JOB_ID": "4711", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "2", "SLURM_PROCID": "0"}
BY_PMIX = {**STEP, "PMIX_RANK": "0", "PMIX_NAMESPACE": "slurm.pmix.4711.0"}
BY_PMI2 = {**STEP, "PMI_SIZE": "2", "PMI_RANK": "0", "PMI_FD": "9", "PMI_JOBID": "4711.0"}


class LoadedMpi(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def start(self, launcher, *libraries, program=PROGRAM, before=(), code=0, **more):
        """Starts the program on a machine whose linker finds these libraries; an empty file hides any other."""
        for name in ("libmpi.so.40", "libmpi.so.12", "libmpich.so.12"):
            file = self.folder / name
            file.unlink(missing_ok=True)
            own = [library for library in libraries if library.name == name]
            file.symlink_to(own[0]) if own else file.touch()
        done = subprocess.run([*before, program], capture_output=True, text=True, timeout=120,
                              env={**CLEAN, **launcher, "LD_LIBRARY_PATH": str(self.folder), **more})
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout.strip()

    def chosen(self, name, launcher, *libraries, **more):
        self.assertIn(f"plugin of {name}, library of {name}, 2 ranks of ", self.start(launcher, *libraries, **more))

    def test_the_mpirun_of_each_mpi_needs_its_own(self):
        for launcher, name, library, other in ((OF_OPEN_MPI, "Open MPI", OPEN_MPI, MPICH), (OF_HYDRA, "MPICH", MPICH, OPEN_MPI)):
            self.chosen(name, launcher, OPEN_MPI, MPICH)
            # Inside an allocation of Slurm, too.
            self.chosen(name, {**launcher, "SLURM_JOB_ID": "4711", "SLURM_NTASKS": "8"}, OPEN_MPI, MPICH)
            error = self.start(launcher, other, code=11)
            self.assertIn(f"MPI cannot be loaded: {self.folder / library.name}: file too short", error)
            self.assertIn("install the launcher's MPI, or start the ranks with torchrun", error)

    def test_srun_with_pmix_starts_open_mpi_if_both_are_there(self):
        self.chosen("Open MPI", BY_PMIX, OPEN_MPI, MPICH)
        self.chosen("Open MPI", BY_PMIX, OPEN_MPI)
        self.chosen("MPICH", BY_PMIX, MPICH)

    def test_srun_with_pmi2_starts_mpich_if_both_are_there(self):
        self.chosen("MPICH", BY_PMI2, OPEN_MPI, MPICH)
        self.chosen("MPICH", BY_PMI2, MPICH)
        self.chosen("Open MPI", BY_PMI2, OPEN_MPI)

    def test_a_library_that_the_script_has_loaded_comes_first(self):
        for launcher in (BY_PMIX, BY_PMI2, OF_OPEN_MPI, OF_HYDRA):
            for name, library in (("Open MPI", OPEN_MPI), ("MPICH", MPICH)):
                self.chosen(name, launcher, OPEN_MPI, MPICH, LD_PRELOAD=str(library))

    def test_without_any_library_both_reasons_are_named(self):
        error = self.start(BY_PMIX, code=11)
        for part in ("SLURM_STEP_NUM_TASKS is set", "libmpi.so.40: ", "libmpi.so.12: ", "libmpich.so.12: "):
            self.assertIn(part, error)

    def test_without_a_plugin_the_other_mpi_is_tried_only_if_it_can_be_the_launchers(self):
        program = self.folder / "bin" / PROGRAM.name
        program.parent.mkdir()
        shutil.copy(PROGRAM, program)
        shutil.copy(FOLDER / "libzerocore_openmpi.so", program.parent)
        self.chosen("Open MPI", BY_PMI2, OPEN_MPI, MPICH, program=program)
        self.assertIn("this package was built without the headers of MPICH",
                      self.start(OF_HYDRA, OPEN_MPI, MPICH, program=program, code=11))

    def test_the_library_next_to_the_launcher_comes_before_the_linkers(self):
        # The launcher: a shell that waits for the rank.
        launcher, library = self.folder / "own/bin/mpirun", self.folder / "own/lib/libmpi.so.40"
        for file in (launcher, library):
            file.parent.mkdir(parents=True)
        shutil.copy(shutil.which("sh"), launcher)
        shutil.copy(OPEN_MPI, library)
        before = (launcher, "-c", '"$0"; exit $?')
        self.chosen("Open MPI", OF_OPEN_MPI, before=before)
        self.assertIn("MPI cannot be loaded", self.start(OF_OPEN_MPI, code=11))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
