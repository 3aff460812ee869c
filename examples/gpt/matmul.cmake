# Chooses the library for the trainer's matrix products: sets gpt_matmul (onednn, blas or eigen) and
# gpt_matmul_libraries. A library counts only if a program builds with it.
include(CheckCXXSourceCompiles)
include(CMakePushCheckState)

set(GPT_MATMUL AUTO CACHE STRING "Matrix products of the trainer: AUTO, onednn, blas or eigen")
set_property(CACHE GPT_MATMUL PROPERTY STRINGS AUTO onednn blas eigen)

# oneDNN 2.6 or 3. Its own package file is not used, because Debian's requires the headers of OpenCL, although oneDNN's
# package does not install them and nothing here needs them.
function(gpt_find_onednn)
  find_path(DNNL_INCLUDE_DIR oneapi/dnnl/dnnl.hpp)
  find_library(DNNL_LIBRARY dnnl)
  mark_as_advanced(DNNL_INCLUDE_DIR DNNL_LIBRARY)
  unset(GPT_ONEDNN_BUILDS CACHE)  # asked anew: a package that was missing may be there by now
  if(DNNL_INCLUDE_DIR AND DNNL_LIBRARY)
    cmake_push_check_state(RESET)
    set(CMAKE_REQUIRED_INCLUDES ${DNNL_INCLUDE_DIR})
    set(CMAKE_REQUIRED_LIBRARIES ${DNNL_LIBRARY})
    check_cxx_source_compiles([[
      #include <oneapi/dnnl/dnnl.hpp>
      int main() {
        dnnl::engine engine(dnnl::engine::kind::cpu, 0);
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        return dnnl::matmul::primitive_desc().get_engine() == engine;
      }]] GPT_ONEDNN_BUILDS)
    cmake_pop_check_state()
    if(NOT GPT_ONEDNN_BUILDS)
      message(STATUS "train_gpt: ${DNNL_LIBRARY} is there, but no program builds with it (see CMakeError.log or "
                     "CMakeConfigureLog.yaml); taking the next library")
    endif()
  endif()
  if(GPT_ONEDNN_BUILDS AND NOT TARGET gpt_onednn)
    add_library(gpt_onednn INTERFACE IMPORTED)
    target_include_directories(gpt_onednn INTERFACE ${DNNL_INCLUDE_DIR})
    target_link_libraries(gpt_onednn INTERFACE ${DNNL_LIBRARY})
  endif()
endfunction()

# AUTO takes a BLAS only if it is a tuned one, because the reference BLAS is slower than Eigen.
function(gpt_choose_matmul)
  if(GPT_MATMUL MATCHES "^(AUTO|onednn)$")
    gpt_find_onednn()
    if(TARGET gpt_onednn)
      set(gpt_matmul onednn PARENT_SCOPE)
      set(gpt_matmul_libraries gpt_onednn PARENT_SCOPE)
      return()
    elseif(GPT_MATMUL STREQUAL "onednn")
      message(FATAL_ERROR "GPT_MATMUL=onednn, but no oneDNN was found that a program builds with (Debian: libdnnl-dev)")
    endif()
  endif()
  if(GPT_MATMUL STREQUAL "blas")
    find_package(BLAS REQUIRED)
  elseif(GPT_MATMUL STREQUAL "AUTO")
    foreach(BLA_VENDOR OpenBLAS Intel10_64lp_seq FLAME)
      if(NOT BLAS_FOUND)
        find_package(BLAS QUIET)
      endif()
    endforeach()
  endif()
  if(BLAS_FOUND)
    set(gpt_matmul blas PARENT_SCOPE)
    set(gpt_matmul_libraries BLAS::BLAS PARENT_SCOPE)
  else()
    set(gpt_matmul eigen PARENT_SCOPE)
    set(gpt_matmul_libraries "" PARENT_SCOPE)
  endif()
endfunction()

gpt_choose_matmul()
message(STATUS "train_gpt: matrix products by ${gpt_matmul}")
