# The toolchain of the preset `wasm`: clang, lld and wasi-libc of Debian. One thread, vectors of 128
# bits; files are those that the page puts into memory.

set(CMAKE_SYSTEM_NAME Generic)
set(CMAKE_SYSTEM_PROCESSOR wasm32)
set(CMAKE_C_COMPILER clang)
set(CMAKE_C_COMPILER_TARGET wasm32-wasi)
set(CMAKE_AR llvm-ar)
set(CMAKE_RANLIB llvm-ranlib)
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
# web/wasi has the headers that wasi-libc lacks.
set(CMAKE_C_FLAGS_INIT "-msimd128 -isystem ${CMAKE_CURRENT_LIST_DIR}/../web/wasi -D_WASI_EMULATED_MMAN \
-D_WASI_EMULATED_SIGNAL -D_WASI_EMULATED_GETPID -D_WASI_EMULATED_PROCESS_CLOCKS")
set(CMAKE_EXE_LINKER_FLAGS_INIT "-lwasi-emulated-mman -lwasi-emulated-getpid -lwasi-emulated-process-clocks")
set(CMAKE_INCLUDE_PATH /usr/include) # Random123: headers alone
# FindThreads cannot link its tests: the functions are inline ones of web/wasi/pthread.h.
set(CMAKE_HAVE_LIBC_PTHREAD ON CACHE INTERNAL "")
set(THREADS_HAVE_PTHREAD_ARG OFF CACHE INTERNAL "")
