"""Chat templates of our own that tell of tools, calls and results in the form of each family of models."""

from __future__ import annotations

_TOLD = """{%- if tools %}{{ '[tools]' }}{% for tool in tools %}{{ tool | tojson }}{% endfor %}{{ '[/]' }}{% endif %}
{%- for message in messages %}
"""
_TURN = """
    {%- else %}{{ '[' ~ message.role ~ ']' ~ message.content ~ '[/]' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '[assistant]' }}{% endif %}
"""

QWEN = (
    _TOLD
    + """
    {%- if message.role == 'assistant' %}{{ '[assistant]' ~ message.content }}
        {%- for call in message.tool_calls %}
            {{- '\\n<tool_call>\\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {{- call.function.arguments | tojson }}
            {{- '}\\n</tool_call>' }}
        {%- endfor %}{{ '[/]' }}
    {%- elif message.role == 'tool' %}{{ '<tool_response>' ~ message.content ~ '</tool_response>' }}"""
    + _TURN
)

QWEN35 = (
    _TOLD
    + """
    {%- if message.role == 'assistant' %}{{ '[assistant]' ~ message.content }}
        {%- for call in message.tool_calls %}
            {{- '<tool_call>\\n<function=' ~ call.function.name ~ '>\\n' }}
            {%- for key, value in call.function.arguments | items %}
                {%- set text = value if value is string else value | tojson %}
                {{- '<parameter=' ~ key ~ '>\\n' ~ text ~ '\\n</parameter>\\n' }}
            {%- endfor %}{{ '</function>\\n</tool_call>' }}
        {%- endfor %}{{ '[/]' }}
    {%- elif message.role == 'tool' %}{{ '<tool_response>' ~ message.content ~ '</tool_response>' }}"""
    + _TURN
)

LLAMA = (
    _TOLD
    + """
    {%- if message.tool_calls %}{{ '[assistant]<|python_tag|>' }}
        {%- for call in message.tool_calls %}
            {{- '{"name": "' + call.function.name + '", "parameters": ' + (call.function.arguments | tojson) + '}' }}
            {{- '' if loop.last else '; ' }}
        {%- endfor %}{{ '[/]' }}
    {%- elif message.role == 'tool' %}{{ '[ipython]' ~ message.content | tojson ~ '[/]' }}"""
    + _TURN
)

GEMMA = (
    "{%- macro written(value) %}{% if value is string %}{{ '<|\"|>' ~ value ~ '<|\"|>' }}"
    "{% else %}{{ value | tojson }}{% endif %}{% endmacro %}"
    + _TOLD
    + """
    {%- if message.tool_calls %}{{ '[assistant]' ~ message.content }}
        {%- for call in message.tool_calls %}
            {{- '<|tool_call>call:' ~ call.function.name ~ '{' }}
            {%- for key, value in call.function.arguments | dictsort %}
                {{- key ~ ':' ~ written(value) }}{{ '' if loop.last else ',' }}
            {%- endfor %}{{ '}<tool_call|>' }}
        {%- endfor %}{{ '[/]' }}
    {%- elif message.role == 'tool' %}{{ '<|tool_response>' ~ message.name ~ ':' ~ message.content }}"""
    + _TURN
)

HARMONY = (
    _TOLD
    + """
    {%- if message.tool_calls %}
        {%- if message.content and message.thinking %}{{ raise_exception('Not both.') }}{% endif %}
        {%- if message.thinking %}
            {{- '<|start|>assistant<|channel|>analysis<|message|>' + message.thinking + '<|end|>' }}
        {%- endif %}
        {%- for call in message.tool_calls %}
            {{- '<|start|>assistant to=functions.' ~ call.function.name ~ '<|channel|>commentary json<|message|>' }}
            {{- call.function.arguments | tojson }}{{ '<|call|>' }}
        {%- endfor %}
    {%- elif message.role == 'tool' %}
        {{- '<|start|>functions.' ~ message.name ~ ' to=assistant<|message|>' ~ message.content ~ '<|end|>' }}
    {%- else %}{{ '<|start|>' ~ message.role ~ '<|message|>' ~ message.content ~ '<|end|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start|>assistant' }}{% endif %}
{%- if reasoning_effort %}{{ reasoning_effort }}{% endif %}"""
)

DEEPSEEK = (
    """
{%- for message in messages %}
    {%- if message['role'] == 'assistant' and message['content'] is none %}{{ '[assistant]<｜tool▁calls▁begin｜>' }}
        {%- for call in message['tool_calls'] %}
            {{- '<｜tool▁call▁begin｜>' + call['type'] + '<｜tool▁sep｜>' + call['function']['name'] }}
            {{- '\\n```json\\n' + call['function']['arguments'] + '\\n```<｜tool▁call▁end｜>' }}
        {%- endfor %}{{ '<｜tool▁calls▁end｜>[/]' }}
    {%- elif message['role'] == 'tool' %}{{ '<｜tool▁output▁begin｜>' + message['content'] + '<｜tool▁output▁end｜>' }}
"""
    + _TURN
)

DSML = (
    "{%- set dsml = '｜DSML｜' %}"
    + _TOLD
    + """
    {%- if message.tool_calls %}{{ '[assistant]' ~ message.content ~ '<' + dsml + 'function_calls>\\n' }}
        {%- for call in message.tool_calls %}{{ '<' + dsml + 'invoke name="' + call.function.name + '">\\n' }}
            {%- for key, value in call.function.arguments.items() %}
                {{- '<' + dsml + 'parameter name="' + key + '" string="' ~ (value is string) | lower ~ '">' }}
                {{- value if value is string else value | tojson }}{{ '</' + dsml + 'parameter>\\n' }}
            {%- endfor %}{{ '</' + dsml + 'invoke>\\n' }}
        {%- endfor %}{{ '</' + dsml + 'function_calls>[/]' }}
    {%- elif message.role == 'tool' %}{{ '<result>' ~ message.content ~ '</result>' }}"""
    + _TURN
)

MISTRAL_NEMO = (
    _TOLD
    + """
    {%- if message.tool_calls is defined %}{{ '[assistant][TOOL_CALLS][' }}
        {%- for call in message.tool_calls %}
            {%- if call.id | length != 9 %}{{ raise_exception('Nine characters.') }}{% endif %}
            {{- (call.function | tojson)[:-1] + ', "id": "' + call.id + '"}' }}{{ ']' if loop.last else ', ' }}
        {%- endfor %}{{ '[/]' }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS]{"content": ' ~ message.content ~ ', "call_id": "' ~ message.tool_call_id ~ '"}' }}"""
    + _TURN
)

MISTRAL_SMALL = (
    _TOLD
    + """
    {%- if message.get('tool_calls') %}{{ '[assistant]' ~ message.content }}
        {%- for call in message.tool_calls %}
            {{- '[TOOL_CALLS]' + call.function.name + '[CALL_ID]' + call.id + '[ARGS]' }}
            {{- call.function.arguments | tojson }}
        {%- endfor %}{{ '[/]' }}
    {%- elif message.role == 'tool' %}
        {{- '[TOOL_RESULTS]' + message.tool_call_id + '[TOOL_CONTENT]' + message.content }}"""
    + _TURN
)

FAMILIES = {
    "Qwen 3": QWEN,
    "Qwen 3.5": QWEN35,
    "Llama 3": LLAMA,
    "Gemma 4": GEMMA,
    "GPT-OSS": HARMONY,
    "DeepSeek V3": DEEPSEEK,
    "DeepSeek V3.2": DSML,
    "Mistral Nemo": MISTRAL_NEMO,
    "Mistral Small": MISTRAL_SMALL,
}
