# Installs the build into its own prefix, builds the consumer against that, and runs it. CUDA, TORCH: whether the build
# has them.
# Usage: cmake -DBUILD=dir -DCONSUMER=dir -DWORK=dir -DCXX=compiler -DGENERATOR=name -DBUILD_TYPE=type -DCUDA=bool
#              -DTORCH=bool -P this

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE code COMMAND_ECHO STDOUT WORKING_DIRECTORY ${WORK})
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "exit code ${code}")
  endif()
endfunction()

set(prefix ${WORK}/prefix)
file(REMOVE_RECURSE ${WORK})
file(MAKE_DIRECTORY ${WORK})
run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
function(build folder)
  run(${CMAKE_COMMAND} -S ${CONSUMER} -B ${folder} -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
      -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_FIND_USE_PACKAGE_REGISTRY=OFF ${ARGN})
  run(${CMAKE_COMMAND} --build ${folder})
endfunction()
# Programs on CPU ranks need no CUDA, even if the build has it.
build(${WORK}/consumer -DCMAKE_DISABLE_FIND_PACKAGE_CUDAToolkit=ON)
if(CUDA)
  build(${WORK}/gpu_consumer -DCONSUMER_CUDA=ON)
endif()
if(TORCH)
  build(${WORK}/torch_consumer -DCONSUMER_TORCH=ON)
  # The error for another torch must name it.
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/other_torch -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
            -DCMAKE_CXX_COMPILER=${CXX} -DCONSUMER_TORCH=ON -DZeroCore_TORCH_ROOT=${WORK}
    RESULT_VARIABLE code ERROR_VARIABLE text)
  if(code EQUAL 0 OR NOT text MATCHES "there is no torch in")
    message(FATAL_ERROR "a folder without torch: ${code}, ${text}")
  endif()
else()
  execute_process(
    COMMAND ${CMAKE_COMMAND} -S ${CONSUMER} -B ${WORK}/no_torch -G ${GENERATOR} -DCMAKE_PREFIX_PATH=${prefix}
            -DCMAKE_CXX_COMPILER=${CXX} -DCONSUMER_TORCH=ON
    RESULT_VARIABLE code ERROR_VARIABLE text)
  if(code EQUAL 0 OR NOT text MATCHES "was built without torch")
    message(FATAL_ERROR "a build without torch: ${code}, ${text}")
  endif()
endif()

# The Python package is installed by its own component alone.
file(GLOB folders RELATIVE ${prefix} ${prefix}/*)
foreach(folder ${folders})
  if(NOT folder MATCHES "^(bin|include|lib|lib64|share)$")
    message(FATAL_ERROR "${folder} is in the prefix")
  endif()
endforeach()

# No path may lead back to the build or source tree.
file(GLOB_RECURSE package ${prefix}/*.cmake)
foreach(file ${package})
  file(READ ${file} text)
  string(FIND "${text}" "${BUILD}" at)
  if(NOT at EQUAL -1)
    message(FATAL_ERROR "${file} names the build folder")
  endif()
endforeach()

# A program without CMake, by the page's Makefile. The prefix has moved, as a package's does.
find_program(pkg_config pkg-config)
if(pkg_config)
  set(folder ${WORK}/makefile)
  file(COPY ${prefix} DESTINATION ${folder})
  file(READ ${CONSUMER}/../../../docs/install.md page)
  string(REGEX MATCH "```make\n([^`]*)```" block "${page}")
  file(WRITE ${folder}/Makefile "${CMAKE_MATCH_1}")
  configure_file(${CONSUMER}/../../../examples/mlp/mlp.cpp ${folder}/program.cpp COPYONLY)
  file(GLOB_RECURSE package ${folder}/prefix/*/zerocore.pc)
  get_filename_component(package ${package} DIRECTORY)
  run(${CMAKE_COMMAND} -E env PKG_CONFIG_PATH=${package} make -C ${folder})
  run(${prefix}/bin/zero run -n 2 ${folder}/program ${CONSUMER}/ds_config.json)
else()
  message(STATUS "pkg-config not found: zerocore.pc is not tested")
endif()

set(mlp ${WORK}/consumer/mlp)
set(config ${CONSUMER}/ds_config.json)
run(${WORK}/consumer/ranks)
run(${mlp} ${config})
run(${prefix}/bin/zero run -n 2 ${mlp} ${config})
if(CUDA)
  run(${WORK}/gpu_consumer/gpu)
endif()
if(TORCH)
  run(${prefix}/bin/zero run -n 2 ${WORK}/torch_consumer/torch_program ${config})
endif()
run(${prefix}/bin/zero --version)
run(${prefix}/bin/zero doctor -n 2)
if(EXISTS ${prefix}/bin/train_gpt)
  run(${prefix}/bin/train_gpt --version)
endif()
