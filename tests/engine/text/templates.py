"""Chat templates of our own, in the manner of those that well-known model families carry."""

from __future__ import annotations

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)

LLAMA3 = """{{- bos_token }}
{%- set opening = 'You are helpful.' if messages[0].role != 'system' else messages[0].content | trim %}
{%- set rest = messages[1:] if messages[0].role == 'system' else messages %}
{%- macro header(role) %}{{ '<|start_header_id|>' ~ role ~ '<|end_header_id|>\\n\\n' }}{% endmacro %}
{{- header('system') }}Today is {{ strftime_now('%d %b %Y') }}.
{{ opening }}{% if tools is not none %}
Tools:
{% for tool in tools %}{{ tool | tojson(indent=4) }}

{% endfor %}{% endif %}<|eot_id|>
{%- for message in rest %}
    {{- header(message.role) + message['content'] | trim + '<|eot_id|>' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ header('assistant') }}{% endif %}
"""

QWEN = """{%- set ns = namespace(last=-1, thought=false) %}
{%- for message in messages[::-1] %}
    {%- if message.role == 'user' and ns.last < 0 %}{% set ns.last = loop.revindex0 %}{% endif %}
{%- endfor %}
{%- if tools %}
    {{- '<|im_start|>system\\n# Tools' }}
    {%- for tool in tools %}{{ '\\n' }}{{ tool | tojson }}{% endfor %}
    {{- '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
    {%- set content = message.content if message.content is string else '' %}
    {%- if message.role == 'assistant' and '</think>' in content %}
        {%- set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}
        {%- set content = content.split('</think>')[-1].lstrip('\\n') %}
        {%- if loop.index0 > ns.last and reasoning %}
            {%- set content = '<think>\\n' ~ reasoning ~ '\\n</think>\\n\\n' ~ content %}
        {%- endif %}
    {%- endif %}
    {{- '<|im_start|>' + message.role + '\\n' + content + '<|im_end|>' + '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
    {%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\\n\\n</think>\\n\\n' }}{% endif %}
{%- endif %}
"""

GEMMA = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('No system messages, please.') }}
{% endif %}
{% for message in messages %}
    {% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Roles must alternate: user, assistant, user.') }}
    {% endif %}
    {%- set role = {'assistant': 'model'}.get(message['role'], message['role']) -%}
{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\\n' }}{% endif %}
"""

MISTRAL = """{{ bos_token }}
{%- for message in messages -%}
    {%- if loop.length > 50 -%}{%- break -%}{%- endif -%}
    {%- if not message.content -%}{%- continue -%}{%- endif -%}
    {%- if message.role == 'user' -%}[INST] {{ message.content }} [/INST]
    {%- elif message.role == 'system' -%}[SYSTEM_PROMPT]{{ message.content }}[/SYSTEM_PROMPT]
    {%- else -%}{% generation %}{{ ' ' + message.content | trim }}{{ eos_token }}{% endgeneration %}
    {%- endif -%}
{%- endfor -%}
"""

ODDS = """{% set roles = messages | map(attribute='role') | unique | sort | join(', ') %}
{{ roles | upper }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }}
{{ messages | rejectattr('role', 'in', ['user']) | map(attribute='content') | first | default('none', true) }}
{% for key, value in {'b': 1, 'a': [true, none, 1.5]} | dictsort %}{{ key }}={{ value | tojson }};{% endfor %}
{{ {'x': 'ä<&>\\'"'} | tojson(separators=(',', ':')) }} {{ ['a', 'b'] | tojson(indent=2, sort_keys=true) }}
{{ '%s-%02d' % ('m', 7) }} {{ '%.2f' | format(2.5) }} {{ '{} {name}'.format('p', name='q') }}
{{ 'text' | capitalize | replace('e', 'E') }} {{ 'a b' | title }} {{ 'x\\ny' | indent(2, true) }} {{ '<b>' | e }}
{{ [3, 1, 2] | sort(reverse=true) | map('string') | join('-') }} {{ range(3) | list }} {{ 7 // 2 }} {{ 2 ** 5 }}
{% filter upper %}shout{% endfilter %}{% set block %}set {{ 1 + 1 }}{% endset %}{{ block }}
{% call(x) wrap() %}<{{ x }}>{% endcall %}{{ undefined_name }}{{ messages[0].nothing }}
{%- macro wrap() %}{{ caller('in') }}{% endmacro %}
{{ messages[-1]['content'][:2] }} {{ messages | length }} {{ 'abc'[::-1] }} {{ 'b' in 'abc' }} {{ none }} {{ true }}
""".replace("{% call", "{%- macro wrap() %}{{ caller('in') }}{% endmacro %}\n{% call", 1)
