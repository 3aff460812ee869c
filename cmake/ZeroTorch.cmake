# The torch of a python3, for pytorch/: torch_python, torch_roots, and of the first root torch_root, torch_version and
# torch_has_cuda. torch is not imported: its package alone, without the libraries that it loads, is enough for a build.
# find_package(Torch) is left alone: it asks for the CUDA Toolkit of the wheel, which a CPU rank has no use for.
set(ZERO_TORCH_PYTHON "" CACHE STRING "The python3 whose torch ZERO_TORCH builds against; empty: the one on the PATH")
set(ZERO_TORCH_ROOTS "" CACHE STRING "Folders of torch packages instead of that torch, one for each minor version: the Python \
package gets an extension for each, and the C++ library is for the first")
set(torch_python ${ZERO_TORCH_PYTHON})
if(NOT torch_python AND SKBUILD)
  set(torch_python ${Python_EXECUTABLE})  # pip's own
endif()
if(NOT torch_python)
  find_program(torch_python_on_path python3)
  set(torch_python ${torch_python_on_path})
endif()
set(torch_help "Install it (\"pip install torch\" in a virtual environment), name another interpreter with \
-DZERO_TORCH_PYTHON=/path/to/bin/python3, or build without it: -DZERO_TORCH=OFF")
if(SKBUILD)
  set(torch_help "Install torch in the environment that this package is for, then build with that torch: \
\"pip install torch numpy scikit-build-core\", then \"pip install --no-build-isolation .\"; or let scripts/make_wheel.sh do it")
endif()
if(NOT torch_python)
  message(FATAL_ERROR "ZERO_TORCH needs a python3 that has torch, and there is no python3 on the PATH. ${torch_help}")
endif()

set(torch_roots ${ZERO_TORCH_ROOTS})
if(NOT torch_roots)
  execute_process(
    COMMAND ${torch_python} -c "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])"
    RESULT_VARIABLE torch_status OUTPUT_VARIABLE torch_roots ERROR_QUIET OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(NOT torch_status EQUAL 0)
    message(FATAL_ERROR "ZERO_TORCH: ${torch_python} has no torch. ${torch_help}")
  endif()
endif()

# zero_torch_facts(ROOT): sets torch_version, torch_minor (2.15) and torch_has_cuda from the package in this folder.
set(torch_oldest 2.11)  # the first with c10::Stream::native_handle(); tests/pytorch compiles against its headers
macro(zero_torch_facts root)
  foreach(file version.py include/torch/csrc/api/include/torch/torch.h lib/libtorch_cpu.so lib/libc10.so)
    if(NOT EXISTS ${root}/${file})
      message(FATAL_ERROR "ZERO_TORCH: the torch package in ${root} has no ${file}. ${torch_help}")
    endif()
  endforeach()
  file(READ ${root}/version.py torch_facts)
  string(REGEX MATCH "__version__ = '(([0-9]+[.][0-9]+)[^']*)'" torch_version "${torch_facts}")
  set(torch_version ${CMAKE_MATCH_1})
  set(torch_minor ${CMAKE_MATCH_2})
  set(torch_has_cuda OFF)
  if(torch_facts MATCHES "\ncuda[^\n]*= '")
    set(torch_has_cuda ON)
  endif()
  if(torch_version VERSION_LESS torch_oldest)
    message(FATAL_ERROR "ZERO_TORCH: the torch in ${root} is ${torch_version}; ${torch_oldest} or later is needed. ${torch_help}")
  endif()
endmacro()
list(GET torch_roots 0 torch_root)
zero_torch_facts(${torch_root})
message(STATUS "torch ${torch_version} in ${torch_root}")
