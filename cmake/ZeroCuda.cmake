# CUDA, if it is wanted and found: each library folder then adds its cuda/ folder to one object library,
# zero_cuda. Programs for GPUs link it, and its objects come before their stand-ins in the libraries
# (STAND_INS in ZeroTargets.cmake), so that all other programs link without the CUDA Toolkit. NCCL is loaded at run time; only
# its header is needed here. Sets zero_has_cuda and zero_has_nccl.

set(ZERO_CUDA AUTO CACHE STRING "The CUDA back end: AUTO (where nvcc is found), ON or OFF")
set_property(CACHE ZERO_CUDA PROPERTY STRINGS AUTO ON OFF)

set(zero_has_cuda OFF)
set(zero_has_nccl OFF)
# Sanitizers check the host code; the GPU has compute-sanitizer.
if(NOT ZERO_CUDA OR (ZERO_CUDA STREQUAL AUTO AND ZERO_SANITIZE))
  return()
endif()

if(NOT DEFINED CMAKE_CUDA_ARCHITECTURES AND NOT DEFINED ENV{CUDAARCHS})
  # Ampere, Hopper, and PTX for later GPUs.
  set(CMAKE_CUDA_ARCHITECTURES 80-real 90)
endif()
if(NOT DEFINED CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
include(CheckLanguage)
# Release 3.25 of CMake fails on CUDA 13, which has no nvToolsExt, in projects that ask for this release.
set(zero_cmake_minimum ${CMAKE_MINIMUM_REQUIRED_VERSION})
set(CMAKE_MINIMUM_REQUIRED_VERSION 3.24)
find_package(CUDAToolkit 12.8 QUIET)
set(CMAKE_MINIMUM_REQUIRED_VERSION ${zero_cmake_minimum})
if(CUDAToolkit_FOUND)
  check_language(CUDA)
endif()
if(NOT CMAKE_CUDA_COMPILER)
  if(ZERO_CUDA STREQUAL AUTO)
    message(STATUS "CUDA: no nvcc 12.8 or newer that takes this C++ compiler; left out")
    return()
  endif()
  message(FATAL_ERROR "ZERO_CUDA=ON, but there is no nvcc 12.8 or newer that takes ${CMAKE_CXX_COMPILER}: install the "
                      "CUDA Toolkit and put nvcc on the PATH, or set CMAKE_CUDA_COMPILER")
endif()
find_path(NVTX_INCLUDE_DIR nvtx3/nvToolsExt.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
mark_as_advanced(NVTX_INCLUDE_DIR)
if(NOT NVTX_INCLUDE_DIR)
  set(zero_missing "this CUDA Toolkit has no nvtx3/nvToolsExt.h (package cuda-nvtx)")
  if(ZERO_CUDA STREQUAL AUTO)
    message(STATUS "CUDA: left out, since ${zero_missing}")
    return()
  endif()
  message(FATAL_ERROR "ZERO_CUDA=ON, but ${zero_missing}: install it")
endif()
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  # CMake 3.25 does not know that nvcc does.
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
endif()
set(CMAKE_CUDA_STANDARD 20)
set(CMAKE_CUDA_STANDARD_REQUIRED ON)
set(zero_has_cuda ON)

option(ZERO_NCCL "Several ranks on GPUs, by NCCL" ON)
set(ZERO_PYTHON_PACKAGES "$ENV{HOME}/.cache/zerocore/python" CACHE PATH
    "Where scripts/install_dependencies.sh has pip put the headers of NCCL and cuDNN")
set(torch_packages)
if(torch_root)
  set(torch_packages ${torch_root}/..)  # a torch with CUDA has its NCCL in the next folder
endif()
find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS} ${ZERO_PYTHON_PACKAGES} ${torch_packages}
          PATH_SUFFIXES nvidia/nccl/include)
mark_as_advanced(NCCL_INCLUDE_DIR)
if(ZERO_NCCL AND NCCL_INCLUDE_DIR)
  set(zero_has_nccl ON)
elseif(ZERO_NCCL AND ZERO_MPI AND NOT ZERO_CUDA STREQUAL AUTO)
  message(FATAL_ERROR "ZERO_CUDA=ON, but there is no nccl.h, without which GPUs are for one rank alone: run "
                      "scripts/install_dependencies.sh, set NCCL_INCLUDE_DIR, or give -DZERO_NCCL=OFF")
elseif(ZERO_NCCL AND ZERO_MPI)
  message(WARNING "CUDA: there is no nccl.h, and GPUs will be for one rank alone: run scripts/install_dependencies.sh, set "
                  "NCCL_INCLUDE_DIR, or give -DZERO_NCCL=OFF to be asked no more")
endif()

# nvcc options for bitwise identical results: no contraction, IEEE division and square root, denormals kept.
add_library(zero_cuda_flags INTERFACE)
target_compile_options(zero_cuda_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CUDA>:-fmad=false -ftz=false -prec-div=true -prec-sqrt=true --expt-relaxed-constexpr
    --generate-line-info -Xcompiler=-ffp-contract=off,-Wall,-Wextra>)

add_library(zero_cuda OBJECT)
target_include_directories(zero_cuda PRIVATE ${PROJECT_SOURCE_DIR})
if(zero_has_nccl)
  target_include_directories(zero_cuda PRIVATE ${NCCL_INCLUDE_DIR})
endif()
set_target_properties(zero_cuda PROPERTIES POSITION_INDEPENDENT_CODE ON)
target_compile_features(zero_cuda PUBLIC cxx_std_20)
target_link_libraries(zero_cuda PUBLIC CUDA::cudart_static ${CMAKE_DL_LIBS}
                                PRIVATE $<BUILD_INTERFACE:zero_build_flags> $<BUILD_INTERFACE:zero_cuda_flags>)
message(STATUS "CUDA ${CUDAToolkit_VERSION}, NCCL header: ${zero_has_nccl}")
