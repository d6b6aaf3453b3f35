# The pool as it is where there is no futex: with condition variables.
plsh_add_testing_objects(plsh_thread_portable "${plsh_thread_source}")
target_compile_definitions(plsh_thread_portable PRIVATE PLSH_THREAD_PORTABLE=1)
add_executable(test_thread_portable base/test_thread.c $<TARGET_OBJECTS:plsh_thread_portable>
    $<FILTER:$<TARGET_OBJECTS:plsh_testing_objects>,EXCLUDE,base/thread\\.c>)
plsh_apply_flags(test_thread_portable)
target_include_directories(test_thread_portable PRIVATE "${PROJECT_SOURCE_DIR}/src"
    "${CMAKE_CURRENT_SOURCE_DIR}")
target_compile_definitions(test_thread_portable PRIVATE PLSH_TESTING=1)
target_link_libraries(test_thread_portable PRIVATE plsh_test_support)
add_test(NAME thread-portable COMMAND test_thread_portable)
set_tests_properties(thread-portable PROPERTIES TIMEOUT 600)
