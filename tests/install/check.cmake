# Installs into a folder of its own, builds the examples against it by CMake and by pkg-config, and runs one.
set(stage ${BUILD}/install-check)
file(REMOVE_RECURSE ${stage})

function(run)
  execute_process(COMMAND ${ARGN} RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT status EQUAL 0)
    message(FATAL_ERROR "failed: ${ARGN}\n${output}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()

run(${CMAKE_COMMAND} --install ${BUILD} --prefix ${stage}/prefix)
run(${stage}/prefix/bin/conclave --version)

run(${CMAKE_COMMAND} -S ${SOURCE}/examples -B ${stage}/build -DCMAKE_PREFIX_PATH=${stage}/prefix
    -DCMAKE_CXX_COMPILER=${CXX})
run(${CMAKE_COMMAND} --build ${stage}/build)
run(${stage}/build/one_op)
string(FIND "${output}" "token 0: expert 1 (0.731) expert 3 (0.269)" found)
if(found EQUAL -1)
  message(FATAL_ERROR "one_op printed:\n${output}")
endif()

find_program(pkg_config pkg-config)
if(pkg_config)
  file(GLOB_RECURSE file ${stage}/prefix/conclave.pc)
  get_filename_component(folder ${file} DIRECTORY)
  set(ENV{PKG_CONFIG_PATH} ${folder})
  run(${pkg_config} --cflags --libs conclave)
  separate_arguments(flags UNIX_COMMAND "${output}")
  run(${CXX} -std=c++20 ${SOURCE}/examples/story.cpp ${flags} -o ${stage}/story)
endif()
file(REMOVE_RECURSE ${stage})
