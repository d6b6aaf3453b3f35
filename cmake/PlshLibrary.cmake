# The library: every src/<room>/*.c, and the kernels that this processor can compile.

include(PlshKernels)
file(GLOB plsh_sources CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/*/*.c"
     "${PROJECT_SOURCE_DIR}/src/attention/*/*.c")
list(FILTER plsh_sources EXCLUDE REGEX "/attention/kernels/")
file(GLOB plsh_kernel_files CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/src/attention/kernels/*.c")
file(GLOB plsh_headers CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/include/plsh/*.h")
plsh_select_kernels(plsh_kernels ${plsh_kernel_files})

find_path(PLSH_RANDOM123_INCLUDE Random123/philox.h)
if(NOT PLSH_RANDOM123_INCLUDE)
    message(FATAL_ERROR "The headers of Random123 are missing: install librandom123-dev, or give "
                        "their folder with -DPLSH_RANDOM123_INCLUDE=...")
endif()
if(NOT PLSH_WITH_ARPACK STREQUAL "OFF")
    find_library(PLSH_ARPACK_LIBRARY arpack)
    if(PLSH_ARPACK_LIBRARY)
        set(plsh_has_arpack ON)
    elseif(PLSH_WITH_ARPACK STREQUAL "AUTO")
        set(plsh_has_arpack OFF)
        message(STATUS "ARPACK not found: spectral norms will be unsupported")
    else()
        message(FATAL_ERROR "ARPACK not found (libarpack2-dev); or say -DPLSH_WITH_ARPACK=OFF")
    endif()
else()
    set(plsh_has_arpack OFF)
endif()

# Compiled once; both libraries are made of the same objects.
add_library(plsh_objects OBJECT ${plsh_sources} ${plsh_kernels})
set_target_properties(plsh_objects PROPERTIES POSITION_INDEPENDENT_CODE ON)
plsh_apply_flags(plsh_objects)
target_include_directories(plsh_objects PRIVATE
    "${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")
target_include_directories(plsh_objects SYSTEM PRIVATE "${PLSH_RANDOM123_INCLUDE}")
target_link_libraries(plsh_objects PRIVATE OpenMP::OpenMP_C)
if(plsh_has_arpack)
    target_compile_definitions(plsh_objects PRIVATE PLSH_WITH_ARPACK=1)
endif()

function(plsh_add_library target kind)
    add_library(${target} ${kind} $<TARGET_OBJECTS:plsh_objects>)
    add_library(plsh::${target} ALIAS ${target})
    set_target_properties(${target} PROPERTIES OUTPUT_NAME plsh EXPORT_NAME ${target}
        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
    target_include_directories(${target} PUBLIC
        "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
        "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
    target_link_libraries(${target} PRIVATE OpenMP::OpenMP_C m)
    if(plsh_has_arpack)
        target_link_libraries(${target} PRIVATE
            "$<BUILD_INTERFACE:${PLSH_ARPACK_LIBRARY}>" $<INSTALL_INTERFACE:arpack>)
    endif()
endfunction()

plsh_add_library(plsh_static STATIC)
if(PLSH_BUILD_SHARED)
    plsh_add_library(plsh_shared SHARED)
    # Also hides what compilers export on their own, such as the locks of OpenMP.
    if(NOT APPLE)
        set(script "${PROJECT_SOURCE_DIR}/cmake/plsh.map")
        target_link_options(plsh_shared PRIVATE "-Wl,--version-script=${script}")
        if(NOT PLSH_SANITIZE) # their functions come with the program
            target_link_options(plsh_shared PRIVATE -Wl,-z,defs)
        endif()
        set_target_properties(plsh_shared PROPERTIES LINK_DEPENDS "${script}")
    endif()
endif()
