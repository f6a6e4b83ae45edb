#!/usr/bin/env python3
"""Renders forty chat templates as transformers does, for the table tests/golden/chat_templates.json.

    pip install "transformers==5.2.0" jinja2==3.1.6
    python3 tests/golden/make/chat_goldens.py > tests/golden/chat_templates.json

An entry is a template, whether the answer is opened, and the text, or null where transformers refuses. All are rendered with the
same messages and tokens, on 26 July 2024 at midnight, which is the date of tova-bench.
"""
import datetime, json
from types import SimpleNamespace

from transformers.utils import chat_template_utils as utils

utils.datetime = SimpleNamespace(now=lambda: datetime.datetime(2024, 7, 26))
MESSAGES = [
    {"role": "system", "content": "Be brief, <please> & \"kind\"."},
    {"role": "user", "content": "  What's 2 + 2?\nÜber 一 😀 \t"},
    {"role": "assistant", "content": "4"},
    {"role": "user", "content": "Why?"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}

TEMPLATES = [
    # The ways of known families.
    "{% for message in messages %}\n{% if message['role'] == 'user' %}\n{{ '<|user|>\n' + message['content'] + eos_token }}\n"
    "{% elif message['role'] == 'system' %}\n{{ '<|system|>\n' + message['content'] + eos_token }}\n{% else %}\n"
    "{{ '<|assistant|>\n' + message['content'] + eos_token }}\n{% endif %}\n"
    "{% if loop.last and add_generation_prompt %}\n{{ '<|assistant|>' }}\n{% endif %}\n{% endfor %}",
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system = messages[0]['content'] %}"
    "{% else %}{% set loop_messages = messages %}{% set system = false %}{% endif %}{% for m in loop_messages %}"
    "{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if loop.index0 == 0 and system != false %}{% set content = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' + m['content'] %}"
    "{% else %}{% set content = m['content'] %}{% endif %}{% if m['role'] == 'user' %}"
    "{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% else %}{{ ' ' + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}",
    "{{- bos_token }}\n{%- if custom_tools is defined %}\n    {%- set tools = custom_tools %}\n{%- endif %}\n"
    "{%- if not date_string is defined %}\n    {%- if strftime_now is defined %}\n        {%- set date_string = strftime_now(\"%d %b %Y\") %}\n"
    "    {%- else %}\n        {%- set date_string = \"26 Jul 2024\" %}\n    {%- endif %}\n{%- endif %}\n"
    "{%- if not tools is defined %}\n    {%- set tools = none %}\n{%- endif %}\n{{- \"Today Date: \" + date_string + \"\\n\\n\" }}\n"
    "{%- if tools is not none %}\n    {{- 'Environment: ipython' }}\n{%- endif %}\n{%- for message in messages %}\n"
    "    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n'+ message['content'] | trim + '<|eot_id|>' }}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}\n{%- endif %}\n",
    "{%- if tools %}{{ 'tools' }}{%- endif %}{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}\n"
    "{%- for message in messages[::-1] %}\n    {%- set index = (messages|length - 1) - loop.index0 %}\n"
    "    {%- if ns.multi_step_tool and message.role == \"user\" and message.content is string and not(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}\n"
    "        {%- set ns.multi_step_tool = false %}\n        {%- set ns.last_query_index = index %}\n    {%- endif %}\n{%- endfor %}\n"
    "{%- for message in messages %}\n    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}\n"
    "    {%- if loop.index0 == ns.last_query_index %}{{- '!' }}{%- endif %}\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n    {%- if enable_thinking is defined and enable_thinking is false %}\n"
    "        {{- '<think>\\n\\n</think>\\n\\n' }}\n    {%- endif %}\n{%- endif %}",
    "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}"
    "{% set role = message['role'] %}{% endif %}{{ '<start_of_turn>' + role + '\n' + message['content'] | trim + '<end_of_turn>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\n'}}{% endif %}",
    # The tag that marks the tokens of answers.
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ eos_token }}{% endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}",
    "{%- for m in messages %}\n  {%- if m.role == 'assistant' -%}\n    {%- generation -%}\n      {{ m.content }}\n    {%- endgeneration -%}\n  {%- else -%}\n    {{ m.role }}\n  {% endif %}\n{% endfor %}",
    "{% generation %}\n  {% set x = 'inside' %}{{ x }}\n  {% endgeneration %}\n{{ x is defined }} {# {% generation %} #}{{ '{% generation %}' }}{% raw %}{% generation %}{% endraw %}",
    # Whitespace and comments.
    "  {% if true %}\n a\n  {%+ if true %}\n b {% endif %}\n{% endif +%}\n\n  {# c #}\n  x {# d -#}  \n y {%- if true -%}  z  {%- endif %}  \n\n{{ 1 }}\n\n",
    "{% raw %}{{ a }}{% b %}\n{% endraw %}\nx\n{%- raw -%}  {{ q }}  {%- endraw -%}\n y{{ '\\n' }}{{ \"\\t'\" }}{{ 'é\\u00e9' }}\n",
    "a\r\n{% if true %}\r\nb\r\n{% endif %}\r\nc\n",
    # Control of loops.
    "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}{% if m.role == 'assistant' %}{% break %}{% endif %}{{ loop.index }}{{ m.role }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index0 }}/{{ loop.length }} {{ loop.revindex }} {{ loop.first }} {{ loop.last }} {{ loop.cycle('a', 'b') }} "
    "{{ loop.previtem.content if loop.previtem is defined else '-' }}{{ loop.nextitem is defined }};{% else %}none{% endfor %}{% for m in [] %}x{% else %}empty{% endfor %}",
    "{% for a in [1, [2, [3]], 4] recursive %}{% if a is number %}{{ a }}{% else %}({{ loop(a) }}{{ loop.depth }}){% endif %}{% endfor %}{% for k, v in {'b': 1, 'a': 2}.items() %}{{ k }}{{ v }}{% endfor %}"
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}",
    # Names and what they last for.
    "{% set x = 1 %}{% for i in [1, 2] %}{% set x = x + i %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set x = 9 %}{% endif %}{{ x }}{% with x = 5, y = 6 %}{{ x + y }}{% endwith %}{{ x }}{% set a, b = 1, 2 %}{{ a }}{{ b }}",
    "{% macro say(who, what='hi', n=2) %}<{{ who }}:{{ what * n }}{{ caller() if caller is defined }}>{% endmacro %}{{ say('a') }}{{ say('b', n=1, what='yo') }}{% call say('c') %}body{% endcall %}{% set s %} block {{ 1 }} {% endset %}[{{ s }}]{% filter upper %}abc{% endfilter %}",
    "{{ missing }}|{{ missing is defined }}|{{ missing | default('d') }}|{{ '' | default('e', true) }}|{{ messages[0].nothing is none }}|{{ none }}|{{ messages[0]['nothing'] | default('f') }}|{% for x in missing %}{% endfor %}{{ 'x' if missing }}|{{ not missing }}",
    "{{ missing.attribute }}",
    "{{ raise_exception('no ' ~ messages[0].role) }}",
    "{{ bos_token }}{{ eos_token }}{{ unk_token }}{{ pad_token }}{{ sep_token is defined }}{{ tools }}{{ documents }}{{ tools is none }}{{ tools is defined }}{{ add_generation_prompt }}",
    # Values as text.
    "{{ true }} {{ none }} {{ 1.0 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e-5 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 3 * 1.5 }} {{ [1, 'a', none, true, 1.5] }} {{ {'a': [1], 'b': \"it's\"} }} {{ (1, 2) }} {{ ('x',) }}",
    "{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ [1, 'b'] }} {{ [1, none, 'x', 2.5] | join('-') }} {{ [1, 2] | string }} {{ true | string }} {{ 5 | string ~ '!' }} {{ '%s-%d' | format('a', 5) }} {{ '{} {b}'.format(1, b='z') }}",
    "{{ messages[1] | tojson }}\n{{ messages[0:1] | tojson(indent=2) }}\n{{ {'b': 1, 'a': [true, none, 1.5, 'é<&>\\''], 'c': {}, 'd': []} | tojson }}",
    "{{ {'b': 1, 'a': {'z': 'é', 'y': 2}} | tojson(ensure_ascii=true, sort_keys=true) }} {{ [1, 2] | tojson(separators=(',', ':')) }} {{ {'a': [1, {'b': 2}]} | tojson(indent=4, separators=(',', ': ')) }} {{ 'é\\n\"\\\\ 😀' | tojson(true) }} {{ 'x' | tojson(indent=none) }}",
    "{{ messages[0] }}{% for k in messages[0] %}{{ k }},{% endfor %}{% for k, v in messages[0] | items %}{{ k }}={{ v }};{% endfor %}{{ messages[0].keys() | list }}{{ messages[0] | length }}{{ 'role' in messages[0] }}{{ messages[0] | dictsort }}{{ messages[0].values() | list | length }}",
    # Filters and tests.
    "{{ messages | map(attribute='role') | join(',') }} {{ messages | selectattr('role', 'equalto', 'user') | list | length }} {{ messages | rejectattr('role', 'eq', 'user') | map(attribute='content') | first }} {{ [3, 1, 2] | sort | join }} {{ [3, 1, 2] | sort(reverse=true) | last }} "
    "{{ ['b', 'A', 'c'] | sort | join }} {{ [1, 2, 2, 1] | unique | list }} {{ [1, 2, 3, 4, 5] | select('odd') | list }} {{ range(5) | reject('even') | list }} {{ [1, 2, 3] | sum }} {{ [1, 2, 3] | max }} {{ ['a', 'b'] | reverse | list }} {{ 'abc' | reverse }}",
    "{{ ' a b ' | trim }}|{{ 'xxaxx' | trim('x') }}|{{ 'hello world' | title }}|{{ 'hELLO' | capitalize }}|{{ 'a,b' | replace(',', ';') }}|{{ 'aaa' | replace('a', 'b', 2) }}|{{ 'a\\nb\\n\\nc' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\nb' | indent(width=1, first=true) }}|{{ '<a>' | e }}|{{ '<a>' | safe }}|"
    "{{ 'ab cd' | wordcount }}|{{ 'foo bar baz qux' | truncate(9) }}|{{ 'a b&ü/' | urlencode }}|{{ '3.7' | float }}|{{ '12' | int + 1 }}|{{ 'x' | int }}|{{ 2.567 | round(2) }}|{{ 2.5 | round }}|{{ -3 | abs }}|{{ 'abc' | list }}|{{ 'abc' | first }}{{ 'abc' | last }}|{{ 'abc' | length }}",
    "{{ [1, 2, 3, 4, 5] | batch(2, 'x') | list }} {{ [1, 2, 3, 4, 5] | slice(2) | list }} {% for g, items in messages | groupby('role') %}{{ g }}:{{ items | length }} {% endfor %}{{ {'a': 1} | items | list }} {{ messages | map('length') | list }} {{ ['a', 'B'] | map('upper') | join }} {{ [[1, 2], [3]] | sum(start=[]) }} {{ '<b>x</b> y' | striptags }}",
    "{{ 'abc' is string }} {{ 1 is number }} {{ true is boolean }} {{ true is number }} {{ true is integer }} {{ 1.0 is float }} {{ [] is sequence }} {{ 'a' is sequence }} {{ {} is sequence }} {{ {} is mapping }} {{ [] is iterable }} {{ 'a' is iterable }} {{ 1 is iterable }} {{ none is none }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} "
    "{{ 'a' is lower }} {{ 'A' is upper }} {{ 1 is eq 1 }} {{ 2 is gt 1 }} {{ 1 is in [1, 2] }} {{ 'x' is not in ['y'] }} {{ raise_exception is callable }} {{ 1 is sameas 1 }} {{ (1, 2) is sequence }} {{ missing is undefined }} {{ true is true }} {{ 0 is false }}",
    # Python's methods.
    "{{ ' x '.strip() }}|{{ 'xxaxx'.strip('x') }}|{{ ' x'.lstrip() }}|{{ 'x '.rstrip() }}|{{ 'a-b-c'.split('-') }}|{{ ' a  b '.split() }}|{{ 'a-b-c'.split('-', 1) }}|{{ 'a-b-c'.rsplit('-', 1) }}|{{ 'a=b=c'.partition('=') }}|{{ 'ab'.upper() }}{{ 'AB'.lower() }}|{{ 'a b'.title() }}|{{ 'x'.join(['1', '2']) }}|"
    "{{ 'abc'.find('c') }}{{ 'abc'.find('z') }}|{{ 'aXbX'.replace('X', '-') }}|{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}|{{ 'prefix-x'.removeprefix('prefix-') }}{{ 'x.txt'.removesuffix('.txt') }}|{{ '12'.isdigit() }}{{ 'ab'.isalpha() }}|{{ 'a\\nb\\r\\nc'.splitlines() }}|{{ 'aab'.count('a') }}|{{ 'abc'.index('b') }}|{{ 'a b'.capitalize() }}",
    "{% set x = {'a': 1, 'b': {'c': [1, 2]}} %}{{ x.get('a') }} {{ x.get('z') }} {{ x.get('z', 5) }} {{ x.b.c[1] }} {{ x['b']['c'][-1] }} {{ x.keys() | list }} {{ x.items() | list }} {{ [1, 2, 1].count(1) }} {{ [1, 2].index(2) }} {{ [1, 2, 3][1:] }} {{ [1, 2, 3][::-1] }} {{ 'abcdef'[1:4] }} {{ 'abcdef'[-2:] }} {{ 'abcdef'[::2] }} {{ 'abc'[0] }} {{ [1] + [2, 3] }} {{ [0] * 3 }} {{ 'ab' * 2 }}",
    "{{ [].append(1) }}",
    "{{ 'a' + 1 }}",
    "{{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'a' < 'b' }} {{ not true }} {{ true and 'x' }} {{ '' or 'y' }} {{ none or 0 }} {{ 1 in [1] }} {{ 'b' in 'abc' }} {{ 3 not in [1] }} {{ [1] == [1] }} {{ {'a': 1} == {'a': 1} }} {{ 'x' if false else 'y' }} {{ 10 % 3 }} {{ -2 ** 2 }} {{ 1 if 0 }}",
    "{% set ns = namespace(n=0, seen=[]) %}{% for m in messages %}{% set ns.n = ns.n + m.content | length %}{% set ns.seen = ns.seen + [m.role] %}{% endfor %}{{ ns.n }} {{ ns.seen }} {% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }} {% set j = joiner('; ') %}{{ j() }}x{{ j() }}y {{ dict(a=1, b=2) }} {{ range(2, 8, 3) | list }}",
    # Dates.
    "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %B %Y') }} {{ strftime_now('%A, %d. %b %y') }} {{ strftime_now('%-d/%-m %e') }} {{ strftime_now('%H:%M:%S %p %I %f') }} {{ strftime_now('%j %U %W %w %u %V %G') }} {{ strftime_now('%a') }} {{ strftime_now('%%') }}",
    "{{ strftime_now('%c') }} | {{ strftime_now('%x') }} | {{ strftime_now('%X') }} | {{ strftime_now('%D %F %T %R %C %h %n%t') }} | {{ strftime_now('[%Z%z]') }} | {{ strftime_now('day %d of %B') }} | {{ strftime_now('') }}é|{{ strftime_now('%B %d, %Y') }}",
    # The rest.
    "{% block head %}{{ bos_token }}{% endblock %}{% set parts = [] %}{% for m in messages %}{% set parts = parts + [m.content | trim] %}{% endfor %}{{ parts | length }}{{ messages[-1].content }}{{ messages[1:-1] | length }}{{ (messages | last)['role'] }}{{ messages | length == 4 }}{{ messages[1]['content'].split('\\n')[0].strip() | replace('?', '!') }}",
    "{%- macro render(content) -%}{%- if content is string -%}{{- content -}}{%- elif content is iterable -%}{%- for c in content -%}{%- if c is mapping and 'text' in c -%}{{- c.text -}}{%- endif -%}{%- endfor -%}{%- endif -%}{%- endmacro -%}\n"
    "{%- for m in messages -%}\n{{ '<|' ~ m.role ~ '|>' }}\n{{ render(m.content) }}{{ render([{'type': 'text', 'text': 'part'}, {'type': 'image'}]) }}<|end|>\n{%- endfor -%}\n{%- if add_generation_prompt %}<|assistant|>{% else %}{{ eos_token }}{% endif %}",
    "{{ messages[0].content | tojson | length }}{{ messages | map(attribute='role') | list | tojson }}{{ messages | selectattr('role', 'in', ['user', 'system']) | map(attribute='role') | join('+') }}{{ messages | map(attribute='missing', default='-') | join }}{{ messages[0] | attr('role') }}{{ 'Ünïcode' | upper }}{{ 'ǆ' | title }}{{ 'a\\u2028b'.splitlines() | length }}{{ '\\x1ca '.strip() | length }}",
]

table = []
for at, template in enumerate(TEMPLATES):
    opens = at % 2 == 0
    try:
        rendered, _ = utils.render_jinja_template([MESSAGES], chat_template=template, add_generation_prompt=opens, **TOKENS)
        text = rendered[0]
    except Exception as error:
        text = None
        print(f"{at}: {error!r}", file=__import__("sys").stderr)
    table.append([template, opens, text])
assert len(table) >= 40
entries = ",\n".join(json.dumps(entry, ensure_ascii=False) for entry in table)
print(json.dumps({"messages": MESSAGES, "tokens": TOKENS}, ensure_ascii=False)[:-1] + ', "templates": [\n' + entries + "\n]}")
