# Adds to a build of any options, by CMAKE_PROJECT_ZeroCore_INCLUDE or tests/builds, small programs that link what a user's
# program would: the library with and without each back end. The target `stubs` builds those that the options have.
include_guard(GLOBAL)

function(add_stub name)
  add_executable(${name} ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/stub.cpp)
  target_link_libraries(${name} PRIVATE zero_build_flags zero_cold_flags ${ARGN})
  add_dependencies(stubs ${name})
endfunction()

function(add_stubs)
  add_custom_target(stubs)
  if(NOT TARGET ZeroCore::zerocore)  # without MPI there is the tool alone, which links these
    add_stub(stub_alone zero_engine zero_config)
    target_sources(stub_alone PRIVATE ${PROJECT_SOURCE_DIR}/comm/loaded_mpi/loader.cpp)
    return()
  endif()
  add_stub(stub_cpu ZeroCore::zerocore)
  if(TARGET ZeroCore::cuda)
    add_stub(stub_cuda ZeroCore::cuda ZeroCore::zerocore)
  endif()
  if(TARGET ZeroCore::torch)
    add_stub(stub_torch ZeroCore::torch ZeroCore::zerocore)
    target_compile_definitions(stub_torch PRIVATE STUB_OF_TORCH)
  endif()
  if(TARGET doctest_main)
    zero_test(stub_test SOURCES ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/stub_test.cpp LIBRARIES zero_engine)
    add_dependencies(stubs stub_test)
  endif()
endfunction()
# At the end of the project, when its targets are there.
cmake_language(DEFER DIRECTORY ${PROJECT_SOURCE_DIR} CALL add_stubs)
