"""Records what the Python tokenizers and transformers libraries give, for src/llm/*_test.cc to compare with.

    python tests/llm/record.py        (needs tokenizers, transformers, jinja2; run from the root)

Writes tests/llm/NAME.tokenizer.json, tokenizer_cases.json and chat_cases.json.
"""
import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = pathlib.Path(__file__).parent
CORPUS = ["The quick brown fox jumps over the lazy dog. It's what they're doing, isn't it?", "hello world hello there world",
          "Straße café naïve über 北京 東京 日本語 Привет мир", "x = 12345 + 67890 # numbers\n    indented\n\n\nlines", "the then them these"] * 4
TEXTS = ["", " ", "Hello world", "  leading", "it's THEY'RE we'll", "a\n\n  b\t c  ", "12345 6.78 ٣٤ ½", "日本語、東京。", "Привет мир!", "हिन्दी",
         "😀👩🏽‍💻🇩🇪", "é e\u0301 \u1112\u1161\u11ab", "\u00a0x\u3000y\u2028z", "<s>hi</s> there", "a<s> <s>b", "un<mid>word <mid> x",
         " <l> <l>a <r>  b", "the<word> <word>the <word>.", "$5 + €7 = «ok»?", "_x__y", "▁x", "\x7f\x01", "Ⅷ²x"]
LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
ADDED = [AddedToken("<s>", special=True, normalized=False), AddedToken("</s>", special=True, normalized=False)]
FLAGS = [AddedToken("<mid>", normalized=True), AddedToken("<l>", lstrip=True, normalized=False), AddedToken("<r>", rstrip=True, normalized=False),
         AddedToken("<word>", single_word=True, normalized=False), AddedToken("the quick", normalized=True)]


def byte_level(pre, normalizer=None, added=ADDED, vocab=300):
    t = Tokenizer(models.BPE())
    if normalizer:
        t.normalizer = normalizer
    t.pre_tokenizer = pre
    t.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=vocab, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False))
    t.add_tokens(added)
    t.decoder = decoders.ByteLevel()
    return t


def characters(normalizer, pre, decoder, byte_fallback=True, **model):
    bytes_ = [f"<0x{b:02X}>" for b in range(256)] if byte_fallback else []
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, **model))
    if normalizer:
        t.normalizer = normalizer
    if pre:
        t.pre_tokenizer = pre
    t.train_from_iterator(CORPUS[:2], trainers.BpeTrainer(vocab_size=len(bytes_) + 60, special_tokens=["<unk>"] + bytes_, show_progress=False))
    t.add_tokens(ADDED)
    if decoder:
        t.decoder = decoder
    return t


def bos(t):
    t.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A $B", special_tokens=[("<s>", t.token_to_id("<s>"))])
    return t


def split(pattern, behavior, invert=False):
    return pre_tokenizers.Split(pattern, behavior, invert)


LLAMA2 = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
SEQUENCE = pre_tokenizers.Sequence
BYTES = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


def tokenizers():
    yield "gpt2", byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), added=ADDED + FLAGS)
    yield "prefix", bos(byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)))
    t = byte_level(SEQUENCE([split(Regex(LLAMA3), "isolated"), BYTES]))
    t.model.ignore_merges = True
    yield "llama3", bos(t)
    yield "qwen", byte_level(SEQUENCE([split(Regex(LLAMA3.replace("{1,3}", "")), "isolated"), BYTES]), normalizers.NFC())
    yield "digits", byte_level(SEQUENCE([pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]))
    yield "behaviors", byte_level(SEQUENCE([
        pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Punctuation("merged_with_previous"), split("e", "merged_with_next"),
        split(Regex(r"\w+"), "contiguous", True), split(Regex(r"\h{2,3}+"), "isolated"), split("q", "removed"), BYTES]))
    yield "llama2", bos(characters(normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), None, LLAMA2, fuse_unk=True))
    yield "gemma", characters(normalizers.Replace(" ", "▁"), split(" ", "merged_with_previous"),
                              decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()]))
    yield "metaspace", characters(None, pre_tokenizers.Metaspace(prepend_scheme="first"), decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]))
    yield "words", characters(normalizers.Strip(), SEQUENCE([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()]), None, byte_fallback=False,
                              fuse_unk=True, end_of_word_suffix="</w>", continuing_subword_prefix="##")
    yield "unknown", characters(None, pre_tokenizers.WhitespaceSplit(), None, byte_fallback=False)


def finish(text, legacy):
    """Without the byte tokens as added ones (the trainer needs them so); legacy: merges as one string each, as before 2024."""
    data = json.loads(text)
    data["added_tokens"] = [a for a in data["added_tokens"] if not a["content"].startswith("<0x")]
    if legacy:
        data["model"]["merges"] = [" ".join(m) for m in data["model"]["merges"]]
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"))


def record_tokenizers():
    cases = {}
    for name, t in tokenizers():
        text = finish(t.to_str(), name in ("prefix", "llama2"))
        t = Tokenizer.from_str(text)
        (HERE / f"{name}.tokenizer.json").write_text(text, encoding="utf-8")
        rows = []
        for s in TEXTS:
            ids = t.encode(s, add_special_tokens=False).ids
            rows.append({"text": s, "ids": ids, "with_special": t.encode(s).ids[: len(t.encode(s).ids) - len(ids)],
                         "decoded": t.decode(ids, skip_special_tokens=False), "skipped": t.decode(ids)})
        cases[name] = rows
    (HERE / "tokenizer_cases.json").write_text(json.dumps(cases, ensure_ascii=False, separators=(",", ":")).replace('{"text"', '\n{"text"'), encoding="utf-8")


CHATML = """{% for m in messages %}{% if loop.first and m.role != 'system' %}{{ '<|im_start|>system\\nBe kind.<|im_end|>\\n' }}{% endif %}
{{- '<|im_start|>' ~ m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' -}}
{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
HEADERS = """{{- bos_token }}
{%- set ns = namespace(system="", rest=messages) %}
{%- if messages[0]["role"] == "system" %}
    {%- set ns.system = messages[0]["content"] | trim %}
    {%- set ns.rest = messages[1:] %}
{%- endif %}
{%- if not date_string is defined %}
    {%- if strftime_now is defined and false %}{% set date_string = strftime_now("%d %b %Y") %}{% else %}{%- set date_string = "1 Jan 2024" %}{%- endif %}
{%- endif %}
{{- "<|start|>system<|end|>\\n\\nDate: " + date_string + "\\n\\n" + ns.system + "<|eot|>" }}
{%- if tools is not none and tools %}
    {{- "Functions:\\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\\n\\n" }}
    {%- endfor %}
{%- endif %}
{%- for message in ns.rest %}
    {%- if not (message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n' + message['content'] | trim + '<|eot|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if message.tool_calls | length != 1 %}
            {{- raise_exception("one call at a time") }}
        {%- endif %}
        {%- set call = message.tool_calls[0].function %}
        {{- '<|start|>assistant<|end|>\\n\\n{"name": "' + call.name + '", "parameters": ' + call.arguments | tojson + '}<|eot|>' }}
    {%- else %}
        {{- "<|start|>tool<|end|>\\n\\n" }}
        {%- if message.content is mapping or (message.content is iterable and message.content is not string) %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start|>assistant<|end|>\\n\\n' }}
{%- endif %}
"""
INST = """{%- if messages[0]['role'] == 'system' -%}
{%- set system = messages[0]['content'] -%}{%- set turns = messages[1:] -%}
{%- else -%}{%- set turns = messages -%}{%- endif -%}
{{ bos_token }}
{%- for m in turns -%}
  {%- if (m.role == 'user') != (loop.index0 % 2 == 0) -%}
    {{ raise_exception('Roles must take turns: ' ~ m.role ~ ' at ' ~ loop.index) }}
  {%- endif -%}
  {%- if m.role == 'user' -%}
    {{ ' [INST] ' }}{% if loop.last and system is defined %}{{ system ~ '\\n\\n' }}{% endif %}{{ m.content }}{{ ' [/INST]' }}
  {%- else -%}
    {% generation %}{{ ' ' ~ m.content.strip() ~ eos_token }}{% endgeneration %}
  {%- endif -%}
{%- endfor -%}
"""
TURNS = """{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('no system') }}{% endif %}
{% for message in messages %}
{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}
{{ '<turn>' + role + '\\n' + message['content'] | trim + '</turn>\\n' }}{% endfor %}
{% if add_generation_prompt %}{{'<turn>model\\n'}}{% endif %}"""
BARS = """{# each role on its own line #}
{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>\\n' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>\\n'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}
"""
MACROS = """{% macro show(content, image='<img>') %}
  {%- if content is string -%}{{ content }}
  {%- else -%}{%- for part in content -%}
    {%- if part.type == 'image' %}{{ image }}{% elif 'text' in part %}{{ part.text }}{% endif -%}
  {%- endfor -%}{%- endif -%}
{% endmacro %}
{% set state = namespace(images=0, last=-1) %}
{% for m in messages %}{% if m.content is not string %}{% set state.images = state.images + (m.content | selectattr('type', 'equalto', 'image') | list | length) %}{% endif %}
{% if m.role == "user" %}{% set state.last = loop.index0 %}{% endif %}{% endfor %}
{% for m in messages %}
{% set text %}{{ show(m.content) }}{% endset %}
[{{ loop.index }}/{{ loop.length }} {{ m.role | upper }}] {{ text | replace('  ', ' ') }}{{ '' if loop.last else ';' }}
{% if loop.index0 > state.last and '</think>' in text %}{{ text.split('</think>')[-1].lstrip('\\n') }}{% endif %}
{% endfor %}
{{ state.images }} {{ messages | map(attribute='role') | join(', ') }} {{ messages | rejectattr('role', 'in', ['user']) | list | length }}"""

# One line each: the pieces of the language.
SNIPPETS = r"""
{{ 1 + 2 * 3 - 4 // 3 }} {{ 7 / 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 2 ** 10 }} {{ 1e3 }} {{ 0.1 + 0.2 }} {{ 1e16 }} {{ 1e-5 }} {{ 123456789.0 }} {{ 1_000 }}
{{ 'a' ~ 1 ~ none ~ true ~ 1.5 }} {{ 'a' * 3 }} {{ [1] + [2] }} {{ not true or false and x }} {{ 1 < 2 < 3 }} {{ 1 == 1.0 }} {{ 'b' > 'a' }} {{ [1, 2] < [1, 3] }}
{{ 'x' in 'xyz' }} {{ 3 not in [1, 2] }} {{ 'k' in {'k': 1} }} {{ missing is defined }} {{ missing is undefined }} {{ missing }}| {{ missing | default('d') }} {{ '' | default('e', true) }}
{{ none is none }} {{ 1 is number }} {{ 'a' is string }} {{ {} is mapping }} {{ [] is iterable }} {{ 'a' is sequence }} {{ true is boolean }} {{ 3 is odd }} {{ 4 is divisibleby 2 }} {{ 1 is integer }} {{ 1.0 is float }} {{ true is true }} {{ 1 is not none }}
{{ 'yes' if 1 else 'no' }} {{ 'yes' if 0 }}| {{ ('a' if 0 else 'b') ~ 'c' }} {{ 1 if 0 else 2 if 0 else 3 }}
{{ 'hello'[1] }} {{ 'hello'[-1] }} {{ 'hello'[1:3] }} {{ 'hello'[::-1] }} {{ 'héllo'[1:2] }} {{ [1, 2, 3][-2:] }} {{ [1, 2, 3][:-1] }} {{ [1, 2, 3, 4][::2] }} {{ 'abc'[5:] }}|
{{ {'a': {'b': [1, 'x', none, true, 1.5]}} }} {{ ['it\'s', "say \"hi\"", 'a\nb\t\\'] }} {{ {'a': 1}.a }} {{ {'a': 1}['a'] }} {{ {'a': 1}.b }}|
{{ '  x '.strip() }}|{{ 'xxaxx'.strip('x') }} {{ ' x'.lstrip() }} {{ 'x '.rstrip() }}| {{ 'a,b,,c'.split(',') }} {{ ' a  b '.split() }} {{ 'a b c'.split(' ', 1) }} {{ 'a.b.c'.rsplit('.', 1) }} {{ 'a\nb\r\nc'.splitlines() }}
{{ 'abc'.startswith('ab') }} {{ 'abc'.endswith(('x', 'c')) }} {{ 'aBc'.upper() }} {{ 'aBc'.lower() }} {{ 'heLLo wOrld'.title() }} {{ 'heLLo'.capitalize() }} {{ 'aXbX'.replace('X', '-') }} {{ 'aXbX'.replace('X', '-', 1) }} {{ 'abcb'.find('b') }} {{ 'abcb'.rfind('b') }} {{ 'abab'.count('ab') }} {{ ','.join(['a', 'b']) }} {{ '12'.isdigit() }} {{ 'ab'.replace('', '.') }}
{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }}{{ ', ' if not loop.last }}{% endfor %} {{ {'a': 1}.get('a') }} {{ {'a': 1}.get('z') }} {{ {'a': 1}.get('z', 9) }} {{ {'a': 1}.keys() | list }} {{ {'a': 1}.values() | list }} {{ {'b': 1, 'a': 2} | dictsort }} {{ {'a': 1} | items | list }}
{{ ' x ' | trim }}| {{ 'abc' | length }} {{ [1, 2] | count }} {{ 'a' | upper }} {{ 'hello world' | title }} {{ 'hELLO' | capitalize }} {{ [3, 1, 2] | sort }} {{ ['b', 'A', 'c'] | sort }} {{ [1, 2] | first }} {{ [1, 2] | last }} {{ [] | first }}| {{ 'abc' | list }} {{ 'abc' | reverse }} {{ [1, 2] | reverse | list }} {{ [1, 1, 2] | unique | list }}
{{ '42' | int }} {{ 'x' | int }} {{ 'x' | int(7) }} {{ '3.9' | int }} {{ '1.5' | float }} {{ 3.7 | int }} {{ -3 | abs }} {{ 5 | string ~ '!' }} {{ 'a-b' | replace('-', '+') }} {{ '<a & "b">' | e }} {{ [1, [2, 'x']] | string }}
{{ {'a': [1, 2.5, none, true, 'é"\n'], 'b': {}, 'c': []} | tojson }} {{ {'a': [1, {'b': []}], 'c': {}} | tojson(indent=2) }} {{ 'x' | tojson }} {{ 1e100 | tojson }}
{{ [{'n': 'a', 'v': 1}, {'n': 'b', 'v': 0}, {'n': 'c'}] | selectattr('v') | map(attribute='n') | join('+') }} {{ [{'n': {'m': 1}}] | map(attribute='n.m') | list }} {{ ['a', 'b'] | map('upper') | join }} {{ [1, 2, 3, 4] | select('even') | list }} {{ [1, 2, 3] | reject('gt', 1) | list }} {{ [0, 1, none, 'a'] | select | list }}
{{ 'a\nb\n\nc' | indent }} {{ 'a\nb' | indent(2, true) }} {{ 'a\nb' | indent(width=1) }}
{% set x = 1 %}{% for i in range(3) %}{% set x = x + i %}{{ x }},{% endfor %}{{ x }} {% set ns = namespace(x=1) %}{% for i in range(3) %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}
{% for i in range(5) if i is even %}{{ i }}:{{ loop.index }}:{{ loop.revindex }}{% if not loop.last %},{% endif %}{% else %}none{% endfor %} {% for i in [] %}x{% else %}empty{% endfor %} {% for a, b in [[1, 2], [3, 4]] %}{{ a + b }} {% endfor %}
{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 5 %}{% break %}{% endif %}{{ i }}{{ loop.cycle('x', 'y') }}{% endfor %} {% for i in [1, 2, 3] %}{{ loop.previtem }}<{{ i }}<{{ loop.nextitem }} {% endfor %} {% for i in [1] %}{% for j in [1, 2] %}{{ loop.depth }}{{ loop.first }}{% endfor %}{% endfor %}
{% macro m(a, b=2, c='x') %}{{ a }}-{{ b }}-{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, c='z') }} {{ m(b=5, a=4) }} {{ m(1) | upper }} {% set g = 7 %}{% macro f() %}{{ g }}{% endmacro %}{{ f() }}
{% set a, b = 1, 2 %}{{ a }}{{ b }} {% set t %}  block {{ a }} {% endset %}[{{ t }}] {% set u | trim | upper %}  blk {% endset %}[{{ u }}] {% filter upper %}abc{{ 'd' }}{% endfilter %} {% raw %}{{ raw }} {% x %}{% endraw %} {# c #}|
a  {%- if true -%}  b  {%- endif -%}  c {{- ' d ' -}} e {#- x -#} f {%+ if true +%} g {% endif %} "{{ 'x' }}" {{ "\u00e9\x41\t|" }}
{{ dict(a=1, b='x') }} {{ range(2, 8, 3) | list }} {{ range(3) | list }} {{ (1, 2) | list }} {{ () | list }} {{ [1, 2,] }} {{ {'a': 1,} }} {{ 'a' 'b' }} {{ true and 'x' }} {{ false or 'y' }} {{ none or [] }}
{{ ['a', 'b'] | join(', ') ~ '.' }} {{ 'x' if missing is defined and missing.y else 'z' }} {{ 'a' is in ['a'] }} {{ 'A' is upper }} {{ -1 | abs + 2 }} {{ not 1 is none }} {{ 'abc'.removeprefix('a').removesuffix('c') }} {{ 2 is eq 2 }} {{ "a" == 'a' }} {{ {'x': [1]}.x[0] }} {{ [[1, 2], [3]][0][1] }} {{ {'a.b': 1}['a.b'] }}
""".strip().split("\n")
LAYOUT = ["  {% if true %}\n  a\n  {% endif %}\nb\n", "x {% if true %}\ny\n{% endif %}z", "{% if true %}  {% set a = 1 %}  {% endif %}|", "\t{# c #}\n a\n\n{{ 'x' }}\n\n",
          "a\r\nb{% if 1 %}\r\nc{% endif %}\r\n", "{%- for i in range(2) %}\n  {{ i }}\n{%- endfor %}\nend\n", "  {{ 1 }}\n  {%+ if 1 %}q{% endif %}\n"]
ERRORS = ["{{ 1 }", "\n\n{% if %}", "{% for x in y %}", "a\n{{ missing.x }}", "{{ missing + 1 }}", "{{ 'a' + 1 }}", "\n{{ 1 / 0 }}", "{{ x() }}", "{% endif %}", "{{ 'a' | nofilter }}",
          "{{ 'a' is notest }}", "{% bogus %}", "{{ [1, 2 }}", "{{ 'abc }}", "{# x", "{% set x.y = 1 %}", "{{ raise_exception('stop') }}", "{{ 1 < 'a' }}", "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}"]


def record_chats():
    system, user, assistant = ({"role": "system", "content": " Be  brief.\n"}, {"role": "user", "content": "Hi \"there\" 你好"}, {"role": "assistant", "content": " Hello! \n"})
    talk = [[user], [system, user], [user, assistant, user], [system, user, assistant, user], [assistant]]
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"x": {"type": "number", "enum": [1, 2.5]}}}}]
    call = {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"x": 2.5, "s": "é"}}}]}
    answer = {"role": "tool", "content": {"result": [1, None]}}
    parts = {"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what  is it?"}]}
    thought = {"role": "assistant", "content": "<think>hm</think>\n\nA cat."}
    contexts = {name: [{"messages": m, "add_generation_prompt": g} for m in talk for g in (False, True)] for name in ("chatml", "inst", "turns", "bars")}
    contexts["headers"] = [{"messages": m, "tools": t, "add_generation_prompt": True} for m in (talk[0], talk[3], [user, call, answer, user]) for t in (None, tools)]
    contexts["macros"] = [{"messages": m} for m in (talk[3], [parts, thought], [parts, parts, thought])]
    sources = {"chatml": CHATML, "inst": INST, "turns": TURNS, "bars": BARS, "headers": HEADERS, "macros": MACROS}
    rows = []

    def add(source, context):
        context = {"bos_token": "<s>", "eos_token": "</s>", **context}
        try:
            rows.append({"template": source, "context": context, "expected": _compile_jinja_template(source).render(**context)})
        except Exception as error:
            rows.append({"template": source, "context": context, "error": type(error).__name__})

    for name, source in sources.items():
        for context in contexts[name]:
            add(source, context)
    for source in SNIPPETS + LAYOUT + ERRORS:
        add(source, {})
    assert all("error" not in r for r in rows if r["template"] in SNIPPETS + LAYOUT), [r for r in rows if "error" in r and r["template"] in SNIPPETS + LAYOUT]
    assert all("error" in r for r in rows if r["template"] in ERRORS), [r for r in rows if "error" not in r and r["template"] in ERRORS]
    table = sorted({r["template"] for r in rows})
    for r in rows:
        r["template"] = table.index(r["template"])
    (HERE / "chat_cases.json").write_text(
        json.dumps({"templates": table, "cases": rows}, ensure_ascii=False, separators=(",", ":")).replace('{"template":', '\n{"template":'), encoding="utf-8")


record_tokenizers()
record_chats()
