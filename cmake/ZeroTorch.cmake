# The torch of a python3, for pytorch/: torch_python, torch_root, torch_version, torch_new_abi, torch_has_cuda.
# find_package(Torch) is left alone: it asks for the CUDA Toolkit of the wheel, which a CPU rank has no use for.
set(ZERO_TORCH_PYTHON "" CACHE STRING "The python3 whose torch ZERO_TORCH builds against; empty: the one on the PATH")
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
\"pip install torch numpy scikit-build-core\", then \"pip install --no-build-isolation .\"")
endif()
if(NOT torch_python)
  message(FATAL_ERROR "ZERO_TORCH needs a python3 that has torch, and there is no python3 on the PATH. ${torch_help}")
endif()

# Warnings of torch's own go to stderr; the last line of stdout is ours.
execute_process(
  COMMAND ${torch_python} -c "import os, torch; print(os.path.dirname(torch.__file__), \
torch.__version__, int(torch._C._GLIBCXX_USE_CXX11_ABI), int(torch.version.cuda is not None), sep=';')"
  RESULT_VARIABLE torch_status OUTPUT_VARIABLE torch_facts ERROR_VARIABLE torch_errors
  OUTPUT_STRIP_TRAILING_WHITESPACE)
if(NOT torch_status EQUAL 0)
  string(REGEX REPLACE ".*\n([^\n]+)\n?$" "\\1" torch_reason "${torch_errors}")
  message(FATAL_ERROR "ZERO_TORCH: ${torch_python} cannot import torch: ${torch_reason}. ${torch_help}")
endif()
list(GET torch_facts 0 torch_root)
list(GET torch_facts 1 torch_version)
list(GET torch_facts 2 torch_new_abi)
list(GET torch_facts 3 torch_has_cuda)
set(torch_oldest 2.9)
if(torch_version VERSION_LESS torch_oldest)
  message(FATAL_ERROR "ZERO_TORCH: ${torch_python} has torch ${torch_version}; ${torch_oldest} or later is needed. ${torch_help}")
endif()
foreach(file include/torch/csrc/api/include/torch/torch.h lib/libtorch_cpu.so lib/libc10.so)
  if(NOT EXISTS ${torch_root}/${file})
    message(FATAL_ERROR "ZERO_TORCH: torch ${torch_version} in ${torch_root} has no ${file}. ${torch_help}")
  endif()
endforeach()
message(STATUS "torch ${torch_version} in ${torch_root}")
