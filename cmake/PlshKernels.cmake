# Which files of a room's kernels this processor can compile, and with what flags.

# clang's fast contracts a * b + c or does not, depending on the code around: the bits of a row would
# depend on the rows beside it. Its on contracts within each expression; gcc knows no such mode.
if(CMAKE_C_COMPILER_ID MATCHES Clang)
    set(plsh_kernel_flags -ffp-contract=on -fno-trapping-math)
else()
    set(plsh_kernel_flags -ffp-contract=fast -fno-trapping-math)
endif()
if(PLSH_SANITIZE) # gcc takes minutes for the instrumented templates at -O2, seconds at -O1
    list(APPEND plsh_kernel_flags -O1)
endif()
set(plsh_flags_avx2 -mavx2 -mfma -mf16c)
# 16 lanes, each vector two AVX2 registers. Such a vector has no agreed ABI; all is inlined.
set(plsh_flags_wide ${plsh_flags_avx2} -Wno-psabi)
set(plsh_flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
set(plsh_flags_vnni ${plsh_flags_avx512} -mavx512vnni)
set(plsh_flags_bf16 ${plsh_flags_avx512} -mavx512bf16)
# AMX, where the compiler knows it (gcc 11, clang 12) and the system is one that can be asked for it.
# The kernels' vectors are AVX-512.
set(plsh_flags_amx ${plsh_flags_avx512} -mamx-tile -mamx-bf16 -mamx-int8)
if(CMAKE_SYSTEM_NAME STREQUAL "Linux" AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    include(CheckCCompilerFlag)
    check_c_compiler_flag("-mamx-tile -mamx-bf16 -mamx-int8" PLSH_COMPILER_HAS_AMX)
endif()
if(PLSH_COMPILER_HAS_AMX) # what names its tables
    set(sources base/cpu.c linear/choose.c linear/kernels/int8_vnni.c linear/kernels/bfloat_bf16.c)
    list(TRANSFORM sources PREPEND "${PROJECT_SOURCE_DIR}/src/")
    set_source_files_properties(${sources} PROPERTIES COMPILE_DEFINITIONS PLSH_WITH_AMX=1)
endif()
set(plsh_flags_neon "")
set(plsh_flags_wasm -msimd128)

# plsh_select_kernels(VARIABLE files...): keeps what this processor has, and sets the flags. What only
# the tests' build has, 16 lanes on AVX2 and AMX emulated, comes in VARIABLE_testing.
function(plsh_select_kernels variable)
    set(kept)
    foreach(file IN LISTS ARGN)
        get_filename_component(name ${file} NAME_WE)
        string(REGEX MATCH "wide|amx|avx512|avx2|neon|vnni|bf16|wasm" isa ${name})
        if(isa STREQUAL "neon" AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
            continue()
        elseif(isa MATCHES "avx512|avx2|wide|vnni|bf16" AND
               NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
            continue()
        elseif(isa STREQUAL "amx" AND NOT PLSH_COMPILER_HAS_AMX)
            continue()
        elseif(isa STREQUAL "wasm" AND NOT CMAKE_SYSTEM_PROCESSOR STREQUAL "wasm32")
            continue()
        endif()
        if(isa)
            set(flags ${plsh_kernel_flags} ${plsh_flags_${isa}})
        else()
            set(flags ${plsh_kernel_flags})
        endif()
        if(CMAKE_SYSTEM_PROCESSOR STREQUAL "wasm32" AND name MATCHES "^reference$")
            list(APPEND flags -Os) # a page is downloaded, and compares with these at most
        endif()
        set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "${flags}")
        list(APPEND kept ${file})
    endforeach()
    set(testing ${kept})
    list(FILTER kept EXCLUDE REGEX "/wide[a-z_]*\\.c$")
    list(FILTER testing INCLUDE REGEX "/wide[a-z_]*\\.c$")
    set(${variable} ${kept} PARENT_SCOPE)
    set(${variable}_testing ${testing} PARENT_SCOPE)
endfunction()
