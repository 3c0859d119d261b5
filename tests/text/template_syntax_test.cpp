// Every construct of the language, one short template each. The expected texts are what Python's jinja2 makes of the same templates, set up as chat templates are there.
#include "text/render.h"

namespace conclave {
namespace {

TEST(TemplateSyntax, TextAndWhitespaceControl) {
  expect_all({
      {"plain\n", "plain"},
      {"plain\n\n", "plain\n"},
      {"a\r\nb\rc", "a\nb\nc"},
      {"{{ 1 }}\n{{ 2 }}\n", "1\n2"},
      {"{% if yes %}\nx\n{% endif %}\ny", "x\ny"},
      {"  {% if yes %}\n  x\n  {% endif %}\ny", "  x\ny"},
      {"a {% if yes %} b {% endif %} c", "a  b  c"},
      {"a  {%- if yes -%}  b  {%- endif -%}  c", "abc"},
      {"a\n  {%+ if yes %}b{% endif +%}\nc", "a\n  b\nc"},
      {"  {{- 1 -}}  \n x", "1x"},
      {"{{- 1 }}  {{ 2 -}}  x", "1  2x"},
      {"{{+1}}{{-1}}", "11"},
      {"a {# c #} b", "a  b"},
      {"a\n  {# c #}\nb", "a\nb"},
      {"a {#- c -#} b", "ab"},
      {"{#+ c +#}\nb", "\nb"},
      {"{% raw %}{{ x }} {% y %}{% endraw %}\nz", "{{ x }} {% y %}z"},
      {"a  {%- raw -%}  {{ x }}  {%- endraw -%}  z", "a{{ x }}z"},
      {"  {% raw %}\n {{ x }}\n  {% endraw %}\nz", "\n {{ x }}\nz"},
      {"{ {x} } {", "{ {x} } {"},
      {"{{ '{%' }}{{ '%}' }}{{ {'a': {'b': 1}}['a']['b'] }}", "{%%}1"},
      {"x {%- if yes %}x{% endif %}", "xx"},
  });
}

TEST(TemplateSyntax, Literals) {
  expect_all({
      {"{{ 'a\\n\\t\\\\\\'\"' }}{{ \"\\\"'\" }}", "a\n\t\\'\"\"'"},
      {"{{ '\\x41\\u00e9\\U0001F389\\101\\q' }}", "Aé🎉A\\q"},
      {"{{ 'a' 'b' \"c\" }}", "abc"},
      {"{{ 1_000 }} {{ 0x1F }} {{ 0o17 }} {{ 0b101 }} {{ 1.5e3 }} {{ 2e-7 }} {{ 1e16 }} {{ 123456789.125 }}",
       "1000 31 15 5 1500.0 2e-07 1e+16 123456789.125"},
      {"{{ true }} {{ False }} {{ none }} {{ None }}", "True False None None"},
      {"{{ [1, 'a', 2.0, none, true] }} {{ (1,) }} {{ () }} {{ (1, 2) }} {{ 1, 2 }}",
       "[1, 'a', 2.0, None, True] (1,) () (1, 2) (1, 2)"},
      {"{{ {'a': 1, 2: [3], 'q': \"it's\"} }}", "{'a': 1, 2: [3], 'q': \"it's\"}"},
      {"{{ ['a\\nb\\\\', '\"', \"'\", '\"\\''] }}", "['a\\nb\\\\', '\"', \"'\", '\"\\'']"},
      {"{{ [uni, '\\x01\\x7f​'] }}", "['ünï 世🎉', '\\x01\\x7f\\u200b']"},
  });
}

TEST(TemplateSyntax, Operators) {
  expect_all({
      {"{{ 1 + 2 * 3 - 4 }} {{ 7 / 2 }} {{ 7 // 2 }} {{ -7 // 2 }} {{ -7 % 3 }} {{ 7 % -3 }} {{ 2 ** 10 }} {{ 2 ** -1 "
       "}} {{ 7.5 // 2 }} {{ -7.5 % 2 }}",
       "3 3.5 3 -4 2 -2 1024 0.5 3.0 0.5"},
      {"{{ 'a' + 'b' }} {{ 'a' * 3 }} {{ 2 * 'ab' }} {{ [1] + [2] }} {{ [0] * 3 }} {{ (1,) + (2,) }}",
       "ab aaa abab [1, 2] [0, 0, 0] (1, 2)"},
      {"{{ 'a' ~ 1 ~ none ~ true ~ 1.0 ~ missing }}", "a1NoneTrue1.0"},
      {"{{ 1 < 2 < 3 }} {{ 1 < 3 < 2 }} {{ 1 == 1.0 == true }} {{ 'a' < 'b' }} {{ [1, 2] < [1, 3] }} {{ 1 != 2 }}",
       "True False True True True True"},
      {"{{ 'b' in 'abc' }} {{ 1 in list }} {{ 'a' in d }} {{ 9 not in list }} {{ 'x' in missing }}",
       "True True True True False"},
      {"{{ yes and no }} {{ 0 or 'x' }} {{ '' or none }} {{ not yes }} {{ not not 1 }} {{ 1 and 2 }}",
       "False x None False True 2"},
      {"{{ 'y' if yes }} {{ 'y' if no }} {{ 'y' if no else 'n' }} {{ 1 if no else 2 if no else 3 }}", "y  n 3"},
      {"{{ -n }} {{ +n }} {{ -2 ** 2 }} {{ -n | abs }} {{ - 3 - -2 }}", "-5 5 4 5 -1"},
      {"{{ '%s has %d (%.2f)%%' % ('x', 3, 1.005) }} {{ '%5d|%-4s|%03d' % (1, 'a', 7) }} {{ '%s' % 'one' }}",
       "x has 3 (1.00)%     1|a   |007 one"},
      {"{{ true + true }} {{ 1.5 + 1 }} {{ 3 * 0.1 }} {{ 1 / 3 }}", "2 2.5 0.30000000000000004 0.3333333333333333"},
  });
}

TEST(TemplateSyntax, AttributesItemsAndSlices) {
  expect_all({
      {"{{ d.a }} {{ d['a'] }} {{ d.C[0] }} {{ d.C.1 }} {{ rows[0].w.z }} {{ d.missing }}|{{ d['missing'] }}|",
       "x x 1 2 Q ||"},
      {"{{ list[0] }} {{ list[-1] }} {{ list[9] }}|{{ name[1] }} {{ uni[0] }}{{ uni[-1] }}", "3 1 |d ü🎉"},
      {"{{ list[1:] }} {{ list[:-1] }} {{ list[::2] }} {{ list[::-1] }} {{ list[3:0:-2] }} {{ list[5:] }}",
       "[1, 2, 1] [3, 1, 2] [3, 2] [1, 2, 1, 3] [1, 1] []"},
      {"{{ name[::-1] }} {{ uni[4:] }} {{ uni[:3] }} {{ uni[::-1] }} {{ name[1:-1] }} {{ name[none:2] }}",
       "adA 世🎉 ünï 🎉世 ïnü d Ad"},
      {"{{ (1, 2, 3)[1:] }} {{ 'abc'[-2:] }}", "(2, 3) bc"},
      {"{{ {'items': 1}['items'] }} {{ {'x': {'get': 2}}.x['get'] }}", "1 2"},
      {"{{ {1: 'one', (1, 2): 'pair', none: 'n'}[1.0] }} {{ {(1, 2): 'pair'}[(1, 2)] }}", "one pair"},
  });
}

TEST(TemplateSyntax, SetAndNamespace) {
  expect_all({
      {"{% set x = 1 %}{{ x }}{% set x = x + 1 %}{{ x }}", "12"},
      {"{% set a, b = 1, 'z' %}{{ a }}{{ b }}{% set (c, d) = [3, 4] %}{{ c }}{{ d }}", "1z34"},
      {"{% set x %}a{{ n }}{% endset %}[{{ x }}]{% set y | upper | trim %} q {% endset %}[{{ y }}]", "[a5][Q]"},
      {"{% set x = 1 %}{% for i in list %}{% set x = i %}{% endfor %}{{ x }}", "1"},
      {"{% if yes %}{% set x = 1 %}{% endif %}{{ x }}", "1"},
      {"{% set ns = namespace(a=1) %}{% for i in list %}{% set ns.a = ns.a + i %}{% endfor %}{{ ns.a }}{{ ns.b }}",
       "8"},
      {"{% set ns = namespace({'k': 2}, l=3) %}{{ ns.k }}{{ ns['l'] }}", "23"},
      {"{% set ns = namespace(x='') %}{% set ns.x %}block{% endset %}{{ ns.x }}", "block"},
      {"{% set x = 1, %}{{ x }}", "(1,)"},
      {"{% with a = 1, b = n %}{{ a }}{{ b }}{% set a = 9 %}{% endwith %}{{ a }}", "15"},
  });
}

TEST(TemplateSyntax, Loops) {
  expect_all({
      {"{% for i in list %}{{ i }},{% endfor %}", "3,1,2,1,"},
      {"{% for i in [] %}x{% else %}none{% endfor %}", "none"},
      {"{% for i in missing %}x{% else %}none{% endfor %}", "none"},
      {"{% for c in 'aé' %}[{{ c }}]{% endfor %}", "[a][é]"},
      {"{% for k in d %}{{ k }}{% endfor %}{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
       "baCb=1;a=x;C=[1, 2];"},
      {"{% for i in list if i > 1 %}{{ loop.index }}/{{ loop.length }}:{{ i }} {% endfor %}", "1/2:3 2/2:2 "},
      {"{% for i in words %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ "
       "loop.last }}{{ loop.length }}{{ loop.depth }}{{ loop.previtem }}{{ loop.nextitem }} {% endfor %}",
       "1043TrueFalse41A 2132FalseFalse41bc 3221FalseFalse41Aa 4310FalseTrue41c "},
      {"{% for i in range(6) %}{% if i == 1 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}{% endif %}{{ i }}{% "
       "endfor %}",
       "023"},
      {"{% for i in range(2) %}{% for j in range(2) %}{{ loop.depth }}{{ i }}{{ j }} {% endfor %}{{ loop.index }}{% "
       "endfor %}",
       "100 101 1110 111 2"},
      {"{% for i in list %}{{ loop.cycle('a', 'b') }}{{ loop.changed(i == 1) }} {% endfor %}",
       "aTrue bTrue aTrue bTrue "},
      {"{% for a, (b, c) in [(1, (2, 3))] %}{{ a }}{{ b }}{{ c }}{% endfor %}", "123"},
      {"{{ range(5)|list }}{{ range(2, 5)|list }}{{ range(5, 0, -2)|list }}", "[0, 1, 2, 3, 4][2, 3, 4][5, 3, 1]"},
      {"{% for i in list %}{% set x = loop.index %}{% if x > 1 %}{{ x }}{% endif %}{% endfor %}{{ x }}", "234"},
      {"{% for x in [1, 2] %}{% if loop.first %}{% set y = x %}{% endif %}{{ y }}-{% endfor %}", "1--"},
      {"{%- for i in list -%}\n  {{ i }}\n{%- endfor -%}", "3121"},
  });
}

TEST(TemplateSyntax, BranchesAndMacros) {
  expect_all({
      {"{% if no %}a{% elif n == 5 %}b{% else %}c{% endif %}", "b"},
      {"{% if missing %}a{% endif %}{% if d %}b{% endif %}{% if empty or nothing or 0 or '' %}c{% endif %}", "b"},
      {"{% macro m(a, b='B', c=a) %}<{{ a }}{{ b }}{{ c }}>{% endmacro %}{{ m(1) }}{{ m(1, c=2) }}{{ m(b=3) }}{{ "
       "m(*[1, 2], **{'c': 4}) }}",
       "<1B1><1B2><3><124>"},
      {"{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}", "3210"},
      {"{% macro v() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ v(1, 2, a=3) }}", "(1, 2){'a': 3}"},
      {"{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}{% for x in [7] %}{{ m() "
       "}}{% endfor %}",
       "122"},
      {"{% macro box(t) %}[{{ t }}:{{ caller() }}]{% endmacro %}{% call box('x') %}in{{ n }}{% endcall %}", "[x:in5]"},
      {"{% macro each(l) %}{% for i in l %}{{ caller(i) }}{% endfor %}{% endmacro %}{% call(i) each(list) %}({{ i "
       "}}){% endcall %}",
       "(3)(1)(2)(1)"},
      {"{% filter upper | replace('A', '4') %}banana {{ name }}{% endfilter %}", "B4N4N4 4D4"},
      {"{% generation %}{% set g = 1 %}x{{ g }}{% endgeneration %}[{{ g }}]", "x1[]"},
      {"{% macro m(x) -%}\n  {{ x }}\n{%- endmacro %}{{ m(1) ~ m(2) }}", "12"},
      {"{{ m is defined }}{% macro m() %}{% endmacro %}{{ m is defined }}{{ m() == '' }}", "FalseTrueTrue"},
  });
}

}  // namespace
}  // namespace conclave
