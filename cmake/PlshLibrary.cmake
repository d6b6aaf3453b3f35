# libplsh: every *.c of its rooms, and the kernels that this processor can compile.

include(PlshKernels)
# plsh_sources(VARIABLE rooms...): every *.c of these rooms, which lie in src/.
function(plsh_sources variable)
    list(TRANSFORM ARGN PREPEND "${PROJECT_SOURCE_DIR}/src/")
    list(TRANSFORM ARGN APPEND "/*.c")
    file(GLOB found CONFIGURE_DEPENDS ${ARGN})
    set(${variable} ${found} PARENT_SCOPE)
endfunction()
plsh_sources(plsh_base_sources base)
# The other libraries have copies of base, but one pool of threads, that of libplsh.
set(plsh_thread_source "${PROJECT_SOURCE_DIR}/src/base/thread.c")
list(REMOVE_ITEM plsh_base_sources "${plsh_thread_source}")
plsh_sources(plsh_sources decay partition head shard theory attention/counting attention/plan
             attention/forward attention/sampled attention/certificate attention/run
             attention/backward attention/cache)
file(GLOB plsh_kernel_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/attention/kernels/*.c")
file(GLOB plsh_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/plsh/*.h")
plsh_select_kernels(plsh_kernels ${plsh_kernel_files})

find_path(PLSH_RANDOM123_INCLUDE Random123/philox.h)
if(NOT PLSH_RANDOM123_INCLUDE)
    message(FATAL_ERROR "The headers of Random123 are missing: install librandom123-dev, or give "
                        "their folder with -DPLSH_RANDOM123_INCLUDE=...")
endif()
# plsh_add_objects(name sources...): compiled once, for the static and the shared library alike.
function(plsh_add_objects name)
    add_library(${name} OBJECT ${ARGN})
    if(NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "wasm32") # slower there, and for no shared library
        set_target_properties(${name} PROPERTIES POSITION_INDEPENDENT_CODE ON)
    endif()
    plsh_apply_flags(${name})
    target_include_directories(${name} PRIVATE
        "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
    target_include_directories(${name} SYSTEM PRIVATE "${PLSH_RANDOM123_INCLUDE}")
    target_link_libraries(${name} PRIVATE Threads::Threads)
endfunction()
plsh_add_objects(plsh_base_objects ${plsh_base_sources})
plsh_add_objects(plsh_objects ${plsh_thread_source} ${plsh_sources} ${plsh_kernels})
if(PLSH_WITH_ARPACK)
    target_compile_definitions(plsh_objects PRIVATE PLSH_WITH_ARPACK=1)
endif()

# plsh_add_testing_objects(name sources...): the few files that differ in the tests' build, which can
# switch CPU features off and make allocations fail, and has one more table of kernels. A test links
# them before the library as it is shipped; everything else comes from that library.
function(plsh_add_testing_objects name)
    plsh_add_objects(${name} ${ARGN})
    target_compile_definitions(${name} PRIVATE PLSH_TESTING=1)
endfunction()
if(PLSH_BUILD_TESTS)
    plsh_add_testing_objects(plsh_testing_objects
        "${PROJECT_SOURCE_DIR}/src/base/cpu.c" "${PROJECT_SOURCE_DIR}/src/base/memory.c"
        "${plsh_thread_source}"
        "${PROJECT_SOURCE_DIR}/src/attention/kernels/choose.c" ${plsh_kernels_testing})
endif()

# plsh_add_library(target kind output objects...): one of our libraries, made of those objects.
function(plsh_add_library target kind output)
    list(TRANSFORM ARGN REPLACE "(.+)" "$<TARGET_OBJECTS:\\1>")
    add_library(${target} ${kind} ${ARGN})
    add_library(plsh::${target} ALIAS ${target})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${output} EXPORT_NAME ${target}
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    target_include_directories(${target} PUBLIC
        "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
        "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    target_link_libraries(${target} PRIVATE Threads::Threads m ${CMAKE_DL_LIBS})
    # Also hides what compilers export on their own.
    if(kind STREQUAL "SHARED" AND NOT APPLE)
        set(script "${PROJECT_SOURCE_DIR}/cmake/${output}.map")
        target_link_options(${target} PRIVATE "-Wl,--version-script=${script}")
        if(NOT PLSH_SANITIZE) # their functions come with the program
            target_link_options(${target} PRIVATE -Wl,-z,defs)
        endif()
        set_target_properties(${target} PROPERTIES LINK_DEPENDS "${script}")
    endif()
endfunction()

plsh_add_library(plsh_static STATIC plsh plsh_base_objects plsh_objects)
if(PLSH_BUILD_SHARED)
    plsh_add_library(plsh_shared SHARED plsh plsh_base_objects plsh_objects)
endif()
# plsh_choose(name): plsh::<name>, the shared library or else the static one, as find_package gives it.
function(plsh_choose name)
    set(kind static)
    if(TARGET ${name}_shared)
        set(kind shared)
    endif()
    add_library(plsh::${name} ALIAS ${name}_${kind})
endfunction()
plsh_choose(plsh)
