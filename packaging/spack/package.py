# The recipe of Spack, for a repository of your own (spack repo create). In the sources: spack dev-build zerocore@main
from spack_repo.builtin.build_systems.cmake import CMakePackage
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Zerocore(CMakePackage, CudaPackage):
    """ZeRO for C++, CUDA, LibTorch and PyTorch: sharded data-parallel training with equal bits at every stage."""

    license("Apache-2.0")

    version("main")

    variant("torch", default=False, description="LibTorch modules, and the Python package")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("mpi@3:")
    depends_on("nlohmann-json@3.9:")
    depends_on("xxhash@0.8:")
    depends_on("cli11@2.1:")
    depends_on("eigen@3.3:")
    depends_on("yaml-cpp@0.7:")
    depends_on("liburing@2.3:")
    depends_on("cuda@12.8:", when="+cuda")
    depends_on("nccl@2.19:", when="+cuda")
    with when("+torch"):
        extends("python")
        depends_on("python@3.10:", type=("build", "link", "run"))
        depends_on("py-torch@2.11:", type=("build", "link", "run"))
        depends_on("py-torch+cuda", when="+cuda")

    conflicts("%gcc@:11", msg="C++20 as GCC 12 has it")
    conflicts("%clang@:13", msg="C++20 as clang 14 has it")
    conflicts("cuda_arch=none", when="+cuda", msg="name the GPUs, for instance cuda_arch=90")

    generator("ninja")

    def cmake_args(self):
        args = [
            self.define("ZERO_CUDA", "ON" if self.spec.satisfies("+cuda") else "OFF"),
            self.define_from_variant("ZERO_TORCH", "torch"),
            self.define("ZERO_BUILD_TESTS", False),
        ]
        if self.spec.satisfies("+cuda"):
            args.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        if self.spec.satisfies("+torch"):
            args.append(self.define("ZERO_TORCH_PYTHON", self.spec["python"].command.path))
        return args

    @run_after("install", when="+torch")
    def install_python_package(self):
        cmake("--install", self.builder.build_directory, "--component", "python", "--prefix", python_platlib)
