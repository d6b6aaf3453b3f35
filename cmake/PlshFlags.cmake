# The flags every target of this project is compiled with: plsh_apply_flags(target).

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_C_FLAGS_RELEASE "-O3 -DNDEBUG")
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# No contraction outside the kernels: a*b+c must round the same on every ISA. The library
# does not use floating-point exceptions: without -fno-trapping-math gcc 12 does not vectorise a loop
# with `x < a ? a : x` (a step of training took 1.2 times as long).
set(plsh_flags -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes
               -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(PLSH_WERROR)
    list(APPEND plsh_flags -Werror)
endif()
if(PLSH_SANITIZE)
    list(APPEND plsh_flags -fsanitize=${PLSH_SANITIZE} -fno-sanitize-recover=all
                           -fno-omit-frame-pointer -g)
    add_link_options(-fsanitize=${PLSH_SANITIZE})
endif()

option(PLSH_FUZZ "build the fuzz targets with libFuzzer (needs clang)" OFF)
if(PLSH_FUZZ)
    list(APPEND plsh_flags -fsanitize=fuzzer-no-link)
endif()

function(plsh_apply_flags target)
    target_compile_options(${target} PRIVATE ${plsh_flags})
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
endfunction()
