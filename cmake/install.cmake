# What `cmake --install` gives: the program, one library of all parts, the headers, a CMake package, a pkg-config file.
#
# include/conclave is the public API. The headers of src/ come along in a folder of its own for programs that use the ops
# one by one: #include <ops/moe_route.h>. That folder is searched, too, so that no header may lie in it itself: one called
# error.h would stand before the C library's.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

get_property(parts GLOBAL PROPERTY CONCLAVE_PARTS)
set(objects "")
foreach(part ${parts})
  list(APPEND objects $<TARGET_OBJECTS:${part}>)
endforeach()
get_property(more GLOBAL PROPERTY CONCLAVE_PART_OBJECTS)  # those that CMake did not compile
add_library(conclave_all STATIC ${objects} ${more})
add_library(conclave::conclave ALIAS conclave_all)
set_target_properties(conclave_all PROPERTIES OUTPUT_NAME conclave EXPORT_NAME conclave LINKER_LANGUAGE CXX)
target_compile_features(conclave_all PUBLIC cxx_std_20)
target_include_directories(
  conclave_all INTERFACE $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                         $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/conclave/src>)
target_link_libraries(conclave_all PUBLIC ${fmt} Threads::Threads)
set(CONCLAVE_PC_LIBS "")
if(CONCLAVE_CUDA)  # the library holds CUDA code: whoever links it needs the toolkit's runtime
  target_link_libraries(conclave_all PUBLIC CUDA::cudart_static)
  set(CONCLAVE_PC_LIBS "-L${CUDAToolkit_LIBRARY_DIR} -lcudart_static -ldl -lrt")
endif()

if(CONCLAVE_METAL AND APPLE)
  target_link_libraries(conclave_all PUBLIC "-framework Metal" "-framework Foundation")
  set(CONCLAVE_PC_LIBS "-framework Metal -framework Foundation")
endif()

install(TARGETS conclave RUNTIME)
# The bundled model, where `conclave run` looks for it.
install(DIRECTORY ${PROJECT_SOURCE_DIR}/models/ DESTINATION ${CMAKE_INSTALL_DATADIR}/conclave OPTIONAL
        FILES_MATCHING PATTERN "*.gguf")
install(TARGETS conclave_all EXPORT conclaveTargets ARCHIVE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/conclave TYPE INCLUDE)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/conclave/src
        FILES_MATCHING PATTERN "*.h" PATTERN "isa" EXCLUDE PATTERN "kernels" EXCLUDE)

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/conclave)
install(EXPORT conclaveTargets NAMESPACE conclave:: DESTINATION ${package})
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/conclaveConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/conclaveConfig.cmake INSTALL_DESTINATION ${package})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/conclaveConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/conclaveConfig.cmake ${PROJECT_BINARY_DIR}/conclaveConfigVersion.cmake
        DESTINATION ${package})

configure_file(${CMAKE_CURRENT_LIST_DIR}/conclave.pc.in ${PROJECT_BINARY_DIR}/conclave.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/conclave.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
