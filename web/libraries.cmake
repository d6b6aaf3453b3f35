# jansson, PCRE2 and utf8proc for WebAssembly, from Debian's sources (web/sources.sh): only the files
# that language models need. Gives the targets that pkg-config gives elsewhere.

set(web_sources "${PROJECT_BINARY_DIR}/sources")
set(plsh_lm_missing)
foreach(name jansson pcre2 utf8proc)
    if(NOT EXISTS "${web_sources}/${name}-source")
        list(APPEND plsh_lm_missing ${name})
    endif()
endforeach()
if(plsh_lm_missing)
    return()
endif()

# web_library(target folder files...)
function(web_library target folder)
    list(TRANSFORM ARGN PREPEND "${web_sources}/${folder}/")
    list(TRANSFORM ARGN APPEND ".c")
    add_library(web_${target} STATIC ${ARGN})
    target_compile_options(web_${target} PRIVATE -w -Os) # not our code
    target_compile_definitions(web_${target} PRIVATE _GNU_SOURCE)
    target_include_directories(web_${target} SYSTEM PUBLIC "${web_sources}/${folder}"
        "${PROJECT_BINARY_DIR}/include")
    add_library(PkgConfig::PLSH_${target} ALIAS web_${target})
endfunction()

set(from "${web_sources}/jansson-source/src")
set(json_inline inline)
set(json_have_long_long 1)
set(json_have_localeconv 0)
set(json_have_atomic_builtins 1)
set(json_have_sync_builtins 1)
configure_file("${from}/jansson_config.h.in" "${PROJECT_BINARY_DIR}/include/jansson_config.h" @ONLY)
file(WRITE "${PROJECT_BINARY_DIR}/include/jansson_private_config.h"
    "#define HAVE_STDINT_H 1\n#define HAVE_UNISTD_H 1\n")
web_library(jansson jansson-source/src dump error hashtable hashtable_seed load memory pack_unpack
    strbuffer strconv utf value version)
target_compile_definitions(web_jansson PRIVATE HAVE_CONFIG_H=1)

set(from "${web_sources}/pcre2-source/src")
configure_file("${from}/config.h.generic" "${PROJECT_BINARY_DIR}/include/config.h" COPYONLY)
configure_file("${from}/pcre2.h.generic" "${PROJECT_BINARY_DIR}/include/pcre2.h" COPYONLY)
configure_file("${from}/pcre2_chartables.c.dist" "${from}/pcre2_chartables.c" COPYONLY)
web_library(libpcre2_8 pcre2-source/src pcre2_auto_possess pcre2_chartables pcre2_compile pcre2_config
    pcre2_context pcre2_error pcre2_extuni pcre2_find_bracket pcre2_jit_compile pcre2_maketables
    pcre2_match pcre2_match_data pcre2_newline pcre2_ord2utf pcre2_pattern_info pcre2_script_run
    pcre2_string_utils pcre2_study pcre2_tables pcre2_ucd pcre2_valid_utf pcre2_xclass)
target_compile_definitions(web_libpcre2_8 PRIVATE HAVE_CONFIG_H=1 PCRE2_CODE_UNIT_WIDTH=8
    SUPPORT_PCRE2_8=1 SUPPORT_UNICODE=1)

web_library(libutf8proc utf8proc-source utf8proc)
target_compile_definitions(web_libutf8proc PUBLIC UTF8PROC_STATIC=1)
