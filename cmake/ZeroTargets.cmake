# How every target of the project is built, and the shapes of its tests.

# Equal bits at every stage and on every machine need products and sums that are not contracted.
add_library(zero_build_flags INTERFACE)
target_compile_features(zero_build_flags INTERFACE cxx_std_20)
target_compile_options(zero_build_flags INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-ffp-contract=off -Wall -Wextra
  -Wpedantic
  # GCC 12 sees overlaps in its own std::string (bug 105651).
  $<$<CXX_COMPILER_ID:GNU>:-Wno-restrict>>)
# Under sanitizers GCC 12 finds fault with its own headers.
if(ZERO_WARNINGS_AS_ERRORS AND NOT ZERO_SANITIZE)
  target_compile_options(zero_build_flags INTERFACE $<$<COMPILE_LANGUAGE:CUDA>:-Xcompiler=>-Werror)
endif()
if(ZERO_SANITIZE)
  target_compile_options(zero_build_flags INTERFACE -fsanitize=${ZERO_SANITIZE} -fno-sanitize-recover=all
                                                    -fno-omit-frame-pointer)
  target_link_options(zero_build_flags INTERFACE -fsanitize=${ZERO_SANITIZE})
endif()

# For all code around the kernels (the engine's control plane, plans, command lines, configs, reports, tests' own sources),
# much of it templates of the standard library, CLI11, nlohmann_json and doctest: optimizing it fully takes more of a build's
# time than the kernels do, and saves 2 us of a step (tests/bench/control_plane.cpp). Loops over elements and bytes keep the
# full optimization.
set(zero_cold_options $<$<CONFIG:Release>:${ZERO_COLD_OPTIONS}>)
add_library(zero_cold_flags INTERFACE)
target_compile_options(zero_cold_flags INTERFACE ${zero_cold_options})

# zero_compile_at_once(NAME): with ZERO_UNITY, the C++ sources of a target reach the compiler many at a time.
function(zero_compile_at_once name)
  if(ZERO_UNITY)
    # At most 50 at a time, in equal parts, so that no part of few sources reads all headers again.
    get_target_property(sources ${name} SOURCES)
    list(LENGTH sources count)
    math(EXPR parts "(${count} + 49) / 50")
    math(EXPR part "${count} / ${parts} + 3")  # and those that are added later
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${part})
    # CMake 3.31 and later would put kernels together too.
    get_target_property(kernels ${name} SOURCES)
    list(FILTER kernels INCLUDE REGEX "\\.cu$")
    set_source_files_properties(${kernels} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    zero_many_at_once(${name})
  endif()
endfunction()

# GCC takes an included file for a header, whose types should have no members of unnamed namespaces. Its collector would
# take a tenth of the time to save a quarter of the memory (1.3 GB at most).
function(zero_many_at_once name)
  target_compile_options(${name} PRIVATE "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:\
-Wno-subobject-linkage;--param=ggc-min-heapsize=4000000>")
endfunction()

# zero_test_at_once(NAME): with ZERO_UNITY, the same for the tests of a doctest binary, ten at a time. They share names of their
# unnamed namespaces, so each is read inside a namespace of its own, after the headers of all. A source that opens another
# namespace, or has conditions, is compiled alone.
function(zero_test_at_once name)
  if(NOT ZERO_UNITY)
    return()
  endif()
  get_target_property(sources ${name} SOURCES)
  set(tests)
  foreach(source ${sources})
    if(source MATCHES "_test\\.cpp$")
      file(STRINGS ${source} apart REGEX "^(namespace [a-z]|template <>|#if|#define)")
      if(NOT apart)
        list(APPEND tests ${source})
      endif()
    endif()
  endforeach()
  list(LENGTH tests count)
  if(count LESS 2)
    return()
  endif()
  list(REMOVE_ITEM sources ${tests})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${tests})
  file(RELATIVE_PATH here ${PROJECT_SOURCE_DIR} ${CMAKE_CURRENT_SOURCE_DIR})
  foreach(begin RANGE 0 ${count} 10)
    list(SUBLIST tests ${begin} 10 part)
    if(NOT part)
      continue()
    endif()
    set(headers)
    set(bodies)
    foreach(source ${part})
      file(STRINGS ${source} lines REGEX "^#include ")
      foreach(line ${lines})
        string(REGEX REPLACE ".*[\"<](.*)[\">].*" "\\1" header ${line})
        if(EXISTS ${CMAKE_CURRENT_SOURCE_DIR}/${header})
          set(line "#include \"${here}/${header}\"")
        endif()
        list(APPEND headers ${line})
      endforeach()
      string(MAKE_C_IDENTIFIER ${source} own)
      string(APPEND bodies "namespace ${own} {\n#include \"${here}/${source}\"\n}\n")
    endforeach()
    list(REMOVE_DUPLICATES headers)
    list(JOIN headers "\n" headers)
    set(at_once ${CMAKE_CURRENT_BINARY_DIR}/${name}_${begin}.cpp)
    file(CONFIGURE OUTPUT ${at_once} CONTENT "${headers}\n${bodies}" @ONLY)
    list(APPEND sources ${at_once})
  endforeach()
  set_property(TARGET ${name} PROPERTY SOURCES ${sources})
  zero_many_at_once(${name})
endfunction()

# zero_library(NAME SOURCES ... [COLD ...] [STAND_INS ...] [MPI ...] PUBLIC ... PRIVATE ...): one static library per folder.
# COLD: sources whose speed does not count, compiled with zero_cold_flags. STAND_INS: functions that zero_cuda defines too, for
# programs without it. MPI: the sources that include mpi.h, left out without ZERO_MPI; a program may define their functions
# itself. Each source of the last two is an object of its own in the library, even in unity builds: the linker takes such an
# object only for a program whose own objects, zero_cuda's among them, define none of its functions.
function(zero_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;COLD;STAND_INS;MPI;PUBLIC;PRIVATE" ${ARGN})
  add_library(${name} STATIC ${ARG_SOURCES} ${ARG_STAND_INS})
  set_property(GLOBAL APPEND PROPERTY ZERO_LIBRARIES ${name})
  if(ARG_STAND_INS)
    set_source_files_properties(${ARG_STAND_INS} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
  endif()
  target_include_directories(${name} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>
                                            $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_compile_features(${name} PUBLIC cxx_std_20)
  target_link_libraries(${name} PUBLIC ${ARG_PUBLIC} PRIVATE $<BUILD_INTERFACE:zero_build_flags> ${ARG_PRIVATE})
  zero_compile_at_once(${name})
  if(ARG_COLD)
    # A target of their own: sources with options of their own are never compiled at once.
    add_library(${name}_cold OBJECT ${ARG_COLD})
    target_include_directories(${name}_cold PRIVATE ${PROJECT_SOURCE_DIR})
    set_target_properties(${name}_cold PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(${name}_cold PRIVATE ${ARG_PUBLIC} ${ARG_PRIVATE} zero_build_flags zero_cold_flags)
    zero_compile_at_once(${name}_cold)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${name}_cold>)
  endif()
  if(ARG_MPI AND ZERO_MPI)
    # A target of their own, so that ZERO_MPI changes no option of the other sources.
    add_library(${name}_mpi OBJECT ${ARG_MPI})
    target_include_directories(${name}_mpi PRIVATE ${PROJECT_SOURCE_DIR})
    # MPI's old C++ bindings would need a library of their own.
    target_compile_definitions(${name}_mpi PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
    set_target_properties(${name}_mpi PROPERTIES POSITION_INDEPENDENT_CODE ON)
    target_link_libraries(${name}_mpi PRIVATE ${ARG_PUBLIC} ${ARG_PRIVATE} zero_build_flags MPI::MPI_C)
    target_sources(${name} PRIVATE $<TARGET_OBJECTS:${name}_mpi>)
    target_link_libraries(${name} INTERFACE $<LINK_ONLY:MPI::MPI_C>)
  endif()
endfunction()

# zero_test(NAME SOURCES ... LIBRARIES ... [LABELS ...] [TIMEOUT seconds]): a doctest binary, run once.
# It counts as one processor, since ranks that are threads mostly wait for each other, and use 0.1 to 1.3 cores together.
function(zero_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "SOURCES;LIBRARIES;LABELS" ${ARGN})
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE zero_build_flags zero_cold_flags ${ARG_LIBRARIES} doctest_main)
  if(NOT torch IN_LIST ARG_LABELS)  # torch's headers go before doctest's
    zero_test_at_once(${name})
  endif()
  add_test(NAME ${name} COMMAND ${name})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
endfunction()

# zero_mpi_test(NAME TARGET binary RANKS 1 2 3 4 [ARGUMENTS ...] [ENVIRONMENT ...] [TIMEOUT seconds]): the
# binary under mpirun, one test per rank count; not in strict mode unless the environment says so.
function(zero_mpi_test name)
  cmake_parse_arguments(ARG "" "TARGET;TIMEOUT" "RANKS;ARGUMENTS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 300)
  endif()
  if(NOT ARG_ENVIRONMENT)
    set(ARG_ENVIRONMENT ZERO_STRICT=0)
  endif()
  foreach(ranks ${ARG_RANKS})
    add_test(NAME ${name}_n${ranks}
             COMMAND ${MPIEXEC_EXECUTABLE} -n ${ranks} --oversubscribe $<TARGET_FILE:${ARG_TARGET}> ${ARG_ARGUMENTS})
    set_tests_properties(${name}_n${ranks} PROPERTIES LABELS mpi TIMEOUT ${ARG_TIMEOUT} PROCESSORS 2
      ENVIRONMENT "OMPI_ALLOW_RUN_AS_ROOT=1;OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1;OMPI_MCA_mpi_yield_when_idle=1;${ARG_ENVIRONMENT}")
  endforeach()
endfunction()
