# ZeroCore::zerocore, the target that users link, and, if the build has them, ZeroCore::cuda for programs
# on GPUs and ZeroCore::torch for programs with LibTorch; and the files of `cmake --install`. The same names work with
# find_package(ZeroCore) and with add_subdirectory.

option(ZERO_INSTALL "Make install rules" ${PROJECT_IS_TOP_LEVEL})

if(TARGET zero AND ZERO_INSTALL)
  install(TARGETS zero RUNTIME)
endif()
# Without MPI there is the tool alone.
if(NOT ZERO_MPI)
  return()
endif()

set(zero_libraries)
foreach(folder base comm optim offload checkpoint plan engine config)
  if(TARGET zero_${folder})
    list(APPEND zero_libraries zero_${folder})
  endif()
endforeach()
# A folder of its own, since `optim/` and `zero/` are names that others may use too.
set(zero_include_dir ${CMAKE_INSTALL_INCLUDEDIR}/zerocore)

add_library(zerocore INTERFACE)
target_link_libraries(zerocore INTERFACE ${zero_libraries})
target_include_directories(zerocore INTERFACE $<INSTALL_INTERFACE:${zero_include_dir}>)
add_library(ZeroCore::zerocore ALIAS zerocore)
if(zero_has_cuda)
  add_library(ZeroCore::cuda ALIAS zero_cuda)
endif()
if(TARGET zero_torch)
  target_include_directories(zero_torch INTERFACE $<INSTALL_INTERFACE:${zero_include_dir}>)
  add_library(ZeroCore::torch ALIAS zero_torch)
endif()

if(NOT ZERO_INSTALL)
  return()
endif()

# zero_public_headers(OUT ROOT...): the headers, and those of ours that they include, directly or not.
function(zero_public_headers out)
  set(found)
  set(open ${ARGN})
  while(open)
    list(POP_FRONT open header)
    if(header IN_LIST found OR NOT EXISTS ${PROJECT_SOURCE_DIR}/${header})
      continue()
    endif()
    list(APPEND found ${header})
    # A header that gains an include must reconfigure.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${header})
    file(STRINGS ${PROJECT_SOURCE_DIR}/${header} lines REGEX "^#include [\"<](zero|optim|comm|pytorch)/")
    foreach(line ${lines})
      string(REGEX REPLACE "^#include [\"<]([^\">]+).*" "\\1" included "${line}")
      list(APPEND open ${included})
    endforeach()
  endwhile()
  set(${out} ${found} PARENT_SCOPE)
endfunction()

set(torch_headers)
if(TARGET zero_torch)
  set(torch_headers pytorch/module.h pytorch/store_rendezvous.h pytorch/tensor_device.h)
endif()
zero_public_headers(zero_headers zero/zero.h zero/config.h zero/testing.h zero/mpi.h zero/cuda.h zero/rendezvous.h
                                 zero/saved_weights.h zero/schedule.h zero/monitor/monitor.h zero/monitor/diagnostics.h
                                 zero/base/cpu/thread_pool.h ${torch_headers})
foreach(header ${zero_headers})
  get_filename_component(folder ${header} DIRECTORY)
  install(FILES ${PROJECT_SOURCE_DIR}/${header} DESTINATION ${zero_include_dir}/${folder})
endforeach()

# A static library passes the libraries behind it on to whoever links it: the package for CMake finds those, and that for
# pkg-config names them; a new one without a line here stops the configuration, not the user. mpicxx links MPI.
set(zero_find_Threads "find_dependency(Threads)")
set(zero_link_Threads -pthread)
set(zero_find_MPI "find_dependency(MPI COMPONENTS C)")
set(zero_link_MPI "")
set(zero_find_yaml-cpp "find_dependency(yaml-cpp)")
set(zero_link_yaml-cpp -lyaml-cpp)
set(ZERO_DEPENDENCIES)
set(zero_links)
foreach(library ${zero_libraries})
  get_target_property(links ${library} INTERFACE_LINK_LIBRARIES)
  if(NOT links)
    continue()
  endif()
  string(REGEX REPLACE "\\$<BUILD_INTERFACE:[^>]*>" "" links "${links}")
  # Before release 0.8 the target of yaml-cpp has no namespace.
  string(REGEX MATCHALL "[A-Za-z0-9_-]+::|yaml-cpp" packages "${links}")
  foreach(package ${packages})
    string(REPLACE "::" "" package ${package})
    if(NOT DEFINED zero_find_${package})
      message(FATAL_ERROR "${library} links ${package}::..., which ZeroCoreConfig.cmake cannot find: "
                          "add zero_find_${package} to cmake/ZeroInstall.cmake")
    endif()
    list(APPEND ZERO_DEPENDENCIES "${zero_find_${package}}")
    list(APPEND zero_links ${zero_link_${package}})
  endforeach()
  # The others are libraries by their names: ours, which are in a group of their own, and the system's.
  string(REGEX MATCHALL "LINK_ONLY:[a-z]+>" names "${links}")
  list(TRANSFORM names REPLACE "LINK_ONLY:(.*)>" "-l\\1")
  list(APPEND zero_links ${names})
endforeach()
list(REMOVE_DUPLICATES ZERO_DEPENDENCIES)
set(ZERO_ENABLE_C)
if("${zero_find_MPI}" IN_LIST ZERO_DEPENDENCIES)
  # FindMPI looks for the C binding in projects with C alone.
  set(ZERO_ENABLE_C "enable_language(C)")
endif()
string(REPLACE ";" "\n" ZERO_DEPENDENCIES "${ZERO_DEPENDENCIES}")

include(CMakePackageConfigHelpers)
set(zero_package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/ZeroCore)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/ZeroCoreConfig.cmake.in
                              ${CMAKE_CURRENT_BINARY_DIR}/ZeroCoreConfig.cmake
                              INSTALL_DESTINATION ${zero_package_dir})
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ZeroCoreConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ZeroCoreConfig.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/ZeroCoreConfigVersion.cmake
        DESTINATION ${zero_package_dir})

# For programs without CMake. The paths follow the package, wherever a prefix is moved.
list(REMOVE_DUPLICATES zero_links)
list(TRANSFORM zero_libraries PREPEND -l OUTPUT_VARIABLE zero_group)
list(JOIN zero_group " " zero_group)
list(JOIN zero_links " " zero_links)
file(RELATIVE_PATH zero_pc_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
configure_file(${CMAKE_CURRENT_LIST_DIR}/zerocore.pc.in ${CMAKE_CURRENT_BINARY_DIR}/zerocore.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/zerocore.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(TARGETS zerocore ${zero_libraries} EXPORT ZeroCoreTargets ARCHIVE)
install(EXPORT ZeroCoreTargets NAMESPACE ZeroCore:: DESTINATION ${zero_package_dir})
if(zero_has_cuda)
  set_target_properties(zero_cuda PROPERTIES EXPORT_NAME cuda)
  install(TARGETS zero_cuda EXPORT ZeroCoreCudaTargets OBJECTS DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT ZeroCoreCudaTargets NAMESPACE ZeroCore:: DESTINATION ${zero_package_dir})
endif()
if(TARGET zero_torch)
  set_target_properties(zero_torch PROPERTIES EXPORT_NAME torch)
  # Optional, because a build of train_gpt and zero alone does not make it.
  install(TARGETS zero_torch EXPORT ZeroCoreTorchTargets ARCHIVE OPTIONAL)
  install(EXPORT ZeroCoreTorchTargets NAMESPACE ZeroCore:: DESTINATION ${zero_package_dir})
  configure_file(${CMAKE_CURRENT_LIST_DIR}/ZeroCoreTorch.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/ZeroCoreTorch.cmake @ONLY)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ZeroCoreTorch.cmake ${CMAKE_CURRENT_LIST_DIR}/ZeroLibTorch.cmake
          DESTINATION ${zero_package_dir})
endif()
if(TARGET train_gpt)
  install(TARGETS train_gpt RUNTIME)
endif()
foreach(helper ${zero_helpers})
  install(TARGETS ${helper} RUNTIME)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
