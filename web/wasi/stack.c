/* web: Debian's compiler-rt for WebAssembly is compiled with the stack protector, whose symbols
 * wasi-libc lacks. */
#include <stdint.h>
#include <stdlib.h>

extern uintptr_t __stack_chk_guard;
void __stack_chk_fail(void);

uintptr_t __stack_chk_guard = 0x9e3779b9;
void __stack_chk_fail(void) { abort(); }
