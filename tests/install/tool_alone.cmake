# Builds the zero tool alone, as for a machine without MPI, and runs it on a config.
# Usage: cmake -DSOURCE=dir -DCONFIG=file -DWORK=dir -DCXX=compiler -DGENERATOR=name -P this

function(run)
  execute_process(COMMAND ${ARGN} COMMAND_ECHO STDOUT COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(REMOVE_RECURSE ${WORK})
# The quickest build suffices, since only compiling and linking are tested.
run(${CMAKE_COMMAND} -S ${SOURCE} -B ${WORK} -G ${GENERATOR} -DCMAKE_CXX_COMPILER=${CXX} -DCMAKE_BUILD_TYPE=Debug
    -DCMAKE_CXX_FLAGS_DEBUG=-O0 -DZERO_MPI=OFF -DZERO_UNITY=ON -DCMAKE_DISABLE_FIND_PACKAGE_MPI=ON)
run(${CMAKE_COMMAND} --build ${WORK})
run(${WORK}/bin/zero config check ${CONFIG} --world-size 8)
run(${WORK}/bin/zero plan --deepspeed_config ${CONFIG} --model gpt2 --ranks 8)
