# Writes the page at / as an array of C: cmake -D FROM=page.html -D TO=page.c -P embed_page.cmake
file(READ "${FROM}" bytes HEX)
string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
string(REGEX REPLACE "((0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,)(0x..,))" "\\1\n" bytes "${bytes}")
file(WRITE "${TO}" "/* made of cli/serve/page.html */\n#include \"cli/serve/serve.h\"\n"
    "const char serve_page[] = {${bytes}0};\nconst size_t serve_page_size = sizeof serve_page - 1;\n")
