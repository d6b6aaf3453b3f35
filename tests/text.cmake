# The frozen cases of the tokenizers lie beside their test.
if(TARGET test_tokenizer)
    target_compile_definitions(test_tokenizer PRIVATE
        PLSH_TEST_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}/text")
endif()
if(TARGET test_weights)
    target_compile_definitions(test_weights PRIVATE
        PLSH_TEST_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}/formats")
endif()
foreach(test test_chat test_convert test_causal_families test_family_gradients test_rope)
    if(TARGET ${test})
        target_compile_definitions(${test} PRIVATE PLSH_TEST_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}/model")
    endif()
endforeach()
