# What `cmake --install` puts where: headers, libraries, find_package, pkg-config, the program
# with its man pages and completion.

include(CMakePackageConfigHelpers)
if(NOT plsh_has_mpi)
    list(FILTER plsh_headers EXCLUDE REGEX "/mpi\\.h$")
endif()
install(FILES ${plsh_headers} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/plsh COMPONENT development)

set(plsh_installed)
if(PLSH_BUILD_STATIC)
    list(APPEND plsh_installed plsh_static)
endif()
if(PLSH_BUILD_SHARED)
    list(APPEND plsh_installed plsh_shared)
endif()
install(TARGETS ${plsh_installed} EXPORT plsh-targets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
    ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)

set(plsh_config_directory ${CMAKE_INSTALL_LIBDIR}/cmake/plsh)
install(EXPORT plsh-targets NAMESPACE plsh:: DESTINATION ${plsh_config_directory}
    COMPONENT development)

# Language models and MPI are exports of their own: projects that do not ask for them do not need their dependencies.
set(plsh_components)
foreach(component lm mpi)
    if(NOT plsh_has_${component})
        continue()
    endif()
    list(APPEND plsh_components ${component})
    set(plsh_component_installed)
    if(PLSH_BUILD_STATIC)
        list(APPEND plsh_component_installed plsh_${component}_static)
    endif()
    if(PLSH_BUILD_SHARED)
        list(APPEND plsh_component_installed plsh_${component}_shared)
    endif()
    install(TARGETS ${plsh_component_installed} EXPORT plsh-${component}-targets
        LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development
        ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT development)
    install(EXPORT plsh-${component}-targets NAMESPACE plsh::
        DESTINATION ${plsh_config_directory} COMPONENT development)
endforeach()

configure_package_config_file(cmake/plsh-config.cmake.in
    "${PROJECT_BINARY_DIR}/plsh-config.cmake" INSTALL_DESTINATION ${plsh_config_directory})
write_basic_package_version_file("${PROJECT_BINARY_DIR}/plsh-config-version.cmake"
    COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/plsh-config.cmake"
    "${PROJECT_BINARY_DIR}/plsh-config-version.cmake"
    DESTINATION ${plsh_config_directory} COMPONENT development)

# What a static link needs besides libplsh.a.
set(plsh_private_libraries "-pthread -lm -ldl")
file(RELATIVE_PATH plsh_prefix_from_pc "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" plsh_prefix_from_pc "${plsh_prefix_from_pc}")
configure_file(cmake/plsh.pc.in "${PROJECT_BINARY_DIR}/plsh.pc" @ONLY)
install(FILES "${PROJECT_BINARY_DIR}/plsh.pc" DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig
    COMPONENT development)
string(REPLACE ";" " " plsh_lm_requires "${plsh_lm_modules}")
foreach(component IN LISTS plsh_components)
    configure_file(cmake/plsh_${component}.pc.in "${PROJECT_BINARY_DIR}/plsh_${component}.pc" @ONLY)
    install(FILES "${PROJECT_BINARY_DIR}/plsh_${component}.pc"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT development)
endforeach()

if(PLSH_BUILD_CLI)
    install(TARGETS plsh RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
    if(plsh_has_mpi)
        install(TARGETS plsh-mpi RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
    endif()
    install(DIRECTORY "${PROJECT_BINARY_DIR}/man/" DESTINATION ${CMAKE_INSTALL_MANDIR}/man1
        COMPONENT program FILES_MATCHING PATTERN "*.1")
    install(FILES "${PROJECT_BINARY_DIR}/completion/plsh"
        DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT program)
    # The recorded experiments that plsh report shows.
    foreach(experiment figure-output error-time extrapolation table-scratch table-protocol
            table-lora streaming full-scale)
        file(GLOB tables CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/experiments/${experiment}/*.tsv")
        install(FILES ${tables} DESTINATION ${CMAKE_INSTALL_DATADIR}/plsh/experiments/${experiment}
            COMPONENT program)
    endforeach()
    install(FILES LICENSE README.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT program)
endif()
