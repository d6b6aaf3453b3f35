# The frozen cases of the tokenizers lie beside their test.
if(TARGET test_tokenizer)
    target_compile_definitions(test_tokenizer PRIVATE
        PLSH_TEST_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}/text")
endif()
if(TARGET test_chat)
    target_compile_definitions(test_chat PRIVATE PLSH_TEST_FOLDER="${CMAKE_CURRENT_SOURCE_DIR}/model")
endif()
