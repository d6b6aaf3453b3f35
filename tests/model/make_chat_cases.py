#!/usr/bin/env python3
"""Makes chat_cases.json: what Jinja, set up as transformers does it, renders from common chat templates.

    python3 tests/model/make_chat_cases.py > tests/model/chat_cases.json        (needs jinja2)
"""
import json

import jinja2
import jinja2.sandbox

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>'"
          " + '\\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
SMOLLM2 = ("{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\\n"
           "You are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\\n' }}{% endif %}"
           "{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}")
ZEPHYR = ("{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\\n' + message['content'] + "
          "eos_token }}\n{% elif message['role'] == 'system' %}\n{{ '<|system|>\\n' + message['content'] + eos_token }}\n"
          "{% elif message['role'] == 'assistant' %}\n{{ '<|assistant|>\\n'  + message['content'] + eos_token }}\n"
          "{% endif %}\n{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}")
LLAMA3 = ("{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
          "message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
          "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}{% if add_generation_prompt %}"
          "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}")
LLAMA2 = ("{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
          "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
          "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
          "{{ raise_exception('roles must alternate') }}{% endif %}{% if loop.index0 == 0 and system_message != false %}"
          "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}"
          "{% set content = message['content'] %}{% endif %}{% if message['role'] == 'user' %}"
          "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
          "{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")
MISTRAL1 = ("{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
            "{{ raise_exception('roles must alternate') }}{% endif %}{% if message['role'] == 'user' %}"
            "{{ '[INST] ' + message['content'] + ' [/INST]' }}{% elif message['role'] == 'assistant' %}"
            "{{ message['content'] + eos_token + ' ' }}{% else %}{{ raise_exception('only user and assistant') }}"
            "{% endif %}{% endfor %}")
MISTRAL2 = ("{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content'] %}\n"
            "    {%- set loop_messages = messages[1:] %}\n{%- else %}\n    {%- set loop_messages = messages %}\n{%- endif %}\n\n"
            "{{- bos_token }}\n{%- for message in loop_messages %}\n"
            "    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}\n"
            "        {{- raise_exception('roles must alternate') }}\n    {%- endif %}\n"
            "    {%- if message['role'] == 'user' %}\n        {%- if loop.first and system_message is defined %}\n"
            "            {{- ' [INST] ' + system_message + '\\n\\n' + message['content'] + ' [/INST]' }}\n        {%- else %}\n"
            "            {{- ' [INST] ' + message['content'] + ' [/INST]' }}\n        {%- endif %}\n"
            "    {%- elif message['role'] == 'assistant' %}\n        {{- ' ' + message['content'] + eos_token}}\n"
            "    {%- else %}\n        {{- raise_exception('only user and assistant') }}\n    {%- endif %}\n{%- endfor %}\n")
TEMPLATES = {"ChatML": CHATML, "SmolLM2": SMOLLM2, "Zephyr": ZEPHYR, "Llama 3": LLAMA3, "Llama 2": LLAMA2,
             "Mistral 1": MISTRAL1, "Mistral 2": MISTRAL2}
NAMES = {"SmolLM2": "ChatML", "Mistral 1": "Mistral", "Mistral 2": "Mistral"}

SYSTEM = {"role": "system", "content": "Answer briefly."}
TURNS = [{"role": "user", "content": " Hi, who are you?\n"}, {"role": "assistant", "content": " A model. "},
         {"role": "user", "content": "Gr\u00fc\u00dfe \u2014 und nun?"}]
CONVERSATIONS = [(TURNS[:1], True), (TURNS[:2], False), (TURNS, True), ([SYSTEM] + TURNS[:1], True), ([SYSTEM] + TURNS, True)]


def refuse(message):
    raise jinja2.TemplateError(message)


def main():
    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.globals["raise_exception"] = refuse
    cases = []
    for name, template in TEMPLATES.items():
        for messages, reply in CONVERSATIONS:
            try:
                text = environment.from_string(template).render(
                    messages=messages, add_generation_prompt=reply, bos_token="<s>", eos_token="</s>")
            except jinja2.TemplateError:
                text = None
            cases.append({"form": NAMES.get(name, name), "template": template, "messages": messages, "reply": reply,
                          "text": text})
    print(json.dumps(cases, indent=1))


if __name__ == "__main__":
    main()
