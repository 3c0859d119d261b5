// Filters, tests and methods. The expected texts are what Python's jinja2 makes of the same templates, set up as chat templates are there.
#include "text/render.h"

namespace conclave {
namespace {

TEST(TemplateBuiltins, Tests) {
  expect_all({
      {"{{ n is defined }}{{ missing is defined }}{{ missing is undefined }}{{ nothing is none }}{{ d.q is not defined "
       "}}",
       "TrueFalseTrueTrueTrue"},
      {"{{ name is string }}{{ d is mapping }}{{ list is sequence }}{{ list is iterable }}{{ n is iterable }}{{ d is "
       "sequence }}{{ name is iterable }}{{ nothing is iterable }}",
       "TrueTrueTrueTrueFalseTrueTrueFalse"},
      {"{{ n is number }}{{ f is number }}{{ yes is number }}{{ n is integer }}{{ yes is integer }}{{ f is float }}{{ "
       "yes is boolean }}{{ 1 is boolean }}",
       "TrueTrueTrueTrueFalseTrueTrueFalse"},
      {"{{ yes is true }}{{ no is false }}{{ 1 is true }}{{ nothing is false }}", "TrueTrueFalseFalse"},
      {"{{ 3 is odd }}{{ 4 is even }}{{ 9 is divisibleby 3 }}{{ 9 is divisibleby(2) }}", "TrueTrueTrueFalse"},
      {"{{ n is equalto 5 }}{{ n is eq(5) }}{{ n is ne 5 }}{{ n is lt 6 }}{{ n is le(5) }}{{ n is gt 5 }}{{ n is ge 5 "
       "}}{{ n is in [5] }}{{ n is not in [5] }}{{ 'a' is in 'abc' }}",
       "TrueTrueFalseTrueTrueFalseTrueTrueFalseTrue"},
      {"{{ 'a' is lower }}{{ 'A1' is upper }}{{ range is callable }}{{ n is callable }}{{ nothing is sameas none }}{{ "
       "n is sameas(5) }}",
       "TrueTrueTrueFalseTrueTrue"},
      {"{{ not n is none }}{{ n is not none and name is string }}", "TrueTrue"},
  });
}

TEST(TemplateBuiltins, TextFilters) {
  expect_all({
      {"[{{ text|trim }}][{{ 'xxaxx'|trim('x') }}]", "[Some Text][a]"},
      {"{{ name|upper }}{{ name|lower }}{{ 'hello WORLD-foo (bar)'|title }}{{ 'hELLO'|capitalize }}{{ 'straße "
       "ünï'|upper }}",
       "ADAadaHello World-Foo (Bar)HelloSTRASSE ÜNÏ"},
      {"{{ 'aaa'|replace('a', 'b') }}{{ 'aaa'|replace('a', 'b', 2) }}{{ 'ab'|replace('', '-') }}{{ 121|replace(1, 3) "
       "}}",
       "bbbbba-a-b-323"},
      {"{{ 'a\\nb\\n\\nc'|indent }}|{{ 'a\\nb'|indent(2, true) }}|{{ 'a\\n\\nb\\n'|indent(1, blank=true) }}|{{ "
       "'a\\nb'|indent('> ') }}",
       "a\n    b\n\n    c|  a\n  b|a\n \n b\n |a\n> b"},
      {"{{ '<a href=\"x\">&'|e }} {{ '<'|safe }} {{ ('<b>'|safe) + '<c>' }} {{ '<x>' + ('<y>'|safe) + '&' }} {{ "
       "('<b>'|safe) ~ '<c>' }}",
       "&lt;a href=&#34;x&#34;&gt;&amp; < <b>&lt;c&gt; &lt;x&gt;<y>&amp; <b><c>"},
      {"{{ 5|string + 'x' }}{{ list|string }}", "5x[3, 1, 2, 1]"},
      {"[{{ 'ab'|center(7) }}]{{ 'a b  c'|wordcount }}{{ '%s-%s'|format(1, 'x') }}", "[   ab  ]31-x"},
  });
}

TEST(TemplateBuiltins, NumbersAndDefaults) {
  expect_all({
      {"{{ '42'|int }} {{ '4.9'|int }} {{ 'x'|int }} {{ 'x'|int(7) }} {{ 3.9|int }} {{ '0x1f'|int(base=16) }} {{ ' 12 "
       "'|int }} {{ none|int }}",
       "42 4 0 7 3 31 12 0"},
      {"{{ '1.5'|float }} {{ 'x'|float }} {{ 3|float }} {{ '1e3'|float }}", "1.5 0.0 3.0 1000.0"},
      {"{{ -3|abs }} {{ -2.5|abs }} {{ 2.5|round }} {{ 3.5|round }} {{ 2.675|round(2) }} {{ 42|round }} {{ "
       "1.21|round(1, 'ceil') }} {{ 1.29|round(1, 'floor') }}",
       "3 2.5 2.0 4.0 2.67 42 1.3 1.2"},
      {"{{ missing|default('d') }}{{ ''|default('d') }}{{ ''|default('d', true) }}{{ none|d('x') }}{{ missing|d }}",
       "ddNone"},
      {"{{ 0.1 + 0.2 }} {{ 1e300 * 1e10 }} {{ 1e-5 }} {{ 0.0001 }} {{ 1e15 }} {{ 123456789012345680.0 }} {{ -0.0 }}",
       "0.30000000000000004 inf 1e-05 0.0001 1000000000000000.0 1.2345678901234568e+17 -0.0"},
  });
}

TEST(TemplateBuiltins, ListFilters) {
  expect_all({
      {"{{ list|length }}{{ name|count }}{{ uni|length }}{{ d|length }}{{ missing|length }}", "43630"},
      {"{{ list|first }}{{ list|last }}{{ 'abc'|first }}{{ 'abc'|last }}{{ empty|first }}|", "31ac|"},
      {"{{ list|join }}{{ list|join(', ') }}{{ rows|join('/', attribute='r') }}", "31213, 1, 2, 1x/y/x"},
      {"{{ 'abc'|list }}{{ d|list }}{{ list|reverse|list }}{{ 'abc'|reverse }}",
       "['a', 'b', 'c']['b', 'a', 'C'][1, 2, 1, 3]cba"},
      {"{{ words|sort }}{{ words|sort(reverse=true) }}{{ words|sort(case_sensitive=true) }}{{ "
       "rows|sort(attribute='v')|map(attribute='v')|list }}{{ rows|sort(attribute='r,v')|map(attribute='v')|list }}",
       "['A', 'a', 'b', 'c']['c', 'b', 'A', 'a']['A', 'a', 'b', 'c'][0, 1, 3][1, 3, 0]"},
      {"{{ d|dictsort }}{{ d|dictsort(true) }}{{ {'x': 2, 'y': 1}|dictsort(by='value') }}{{ {'x': 2, 'y': "
       "1}|dictsort(reverse=true) }}",
       "[('a', 'x'), ('b', 1), ('C', [1, 2])][('C', [1, 2]), ('a', 'x'), ('b', 1)][('y', 1), ('x', 2)][('y', 1), ('x', "
       "2)]"},
      {"{{ words|unique|list }}{{ list|unique|list }}{{ rows|unique(attribute='r')|list|length }}",
       "['b', 'A', 'c'][3, 1, 2]2"},
      {"{{ list|map('string')|list }}{{ words|map('upper')|join }}{{ rows|map(attribute='w.z', default='-')|list }}{{ "
       "nothing|map('upper')|list }}",
       "['3', '1', '2', '1']BACA['Q', '-', 'P'][]"},
      {"{{ list|select('odd')|list }}{{ list|reject('odd')|list }}{{ [0, 1, '']|select|list }}{{ list|select('>', "
       "1)|list }}{{ list|select('in', [2, 3])|list }}",
       "[3, 1, 1][2][1][3, 2][3, 2]"},
      {"{{ rows|selectattr('v')|list|length }}{{ rows|selectattr('r', 'equalto', 'x')|list|length }}{{ "
       "rows|rejectattr('w', 'defined')|list }}{{ rows|selectattr('w.z', 'eq', 'P')|map(attribute='v')|first if false "
       "else '' }}",
       "22[{'r': 'y', 'v': 0}]"},
      {"{{ d|items|list }}{{ missing|items|list }}", "[('b', 1), ('a', 'x'), ('C', [1, 2])][]"},
      {"{{ list|sum }}{{ rows|sum(attribute='v') }}{{ list|min }}{{ list|max }}{{ words|min }}{{ "
       "rows|max(attribute='v') }}",
       "7413A{'r': 'x', 'v': 3, 'w': {'z': 'P'}}"},
      {"{{ list|batch(3)|list }}{{ list|batch(3, 'f')|list }}", "[[3, 1, 2], [1]][[3, 1, 2], [1, 'f', 'f']]"},
  });
}

TEST(TemplateBuiltins, ToJson) {
  expect_all({
      {"{{ d|tojson }}", "{\"b\": 1, \"a\": \"x\", \"C\": [1, 2]}"},
      {"{{ rows|tojson(indent=2) }}",
       "[\n  {\n    \"r\": \"x\",\n    \"v\": 1,\n    \"w\": {\n      \"z\": \"Q\"\n    }\n  },\n  {\n    \"r\": "
       "\"y\",\n    \"v\": 0\n  },\n  {\n    \"r\": \"x\",\n    \"v\": 3,\n    \"w\": {\n      \"z\": \"P\"\n    }\n  "
       "}\n]"},
      {"{{ {'b': [], 'a': {}}|tojson(indent=4, sort_keys=true) }}", "{\n    \"a\": {},\n    \"b\": []\n}"},
      {"{{ [1.0, 1e20, true, none, 'é\"\\\\\\n\\x01</b>']|tojson }}",
       "[1.0, 1e+20, true, null, \"é\\\"\\\\\\n\\u0001</b>\"]"},
      {"{{ 'é🎉\\x7f'|tojson(ensure_ascii=true) }}", "\"\\u00e9\\ud83c\\udf89\\u007f\""},
      {"{{ {'a': [1, 2], 1: 2, none: 3, true: 4, 2.5: 5}|tojson(separators=(',', ':')) }}",
       "{\"a\":[1,2],\"1\":4,\"null\":3,\"2.5\":5}"},
      {"{{ [1, [2, {'x': ()}]]|tojson(indent='\\t') }}", "[\n\t1,\n\t[\n\t\t2,\n\t\t{\n\t\t\t\"x\": []\n\t\t}\n\t]\n]"},
      {"{{ {'a': 1}|tojson(false, 2) }}", "{\n  \"a\": 1\n}"},
  });
}

TEST(TemplateBuiltins, TextMethods) {
  expect_all({
      {"[{{ text.strip() }}][{{ text.lstrip() }}][{{ text.rstrip() }}][{{ 'xyaxy'.strip('yx') }}][{{ "
       "'\\u3000a\\xa0'.strip() }}]",
       "[Some Text][Some Text\n][ Some Text][a][a]"},
      {"{{ ' a b  c '.split() }}{{ 'a,b,,c'.split(',') }}{{ 'a,b,c'.split(',', 1) }}{{ 'a,b,c'.rsplit(',', 1) }}{{ ' a "
       "b c '.split(none, 1) }}{{ ' a b c '.rsplit(none, 1) }}{{ ''.split() }}{{ ''.split(',') }}{{ 'aaaa'.split('aa') "
       "}}{{ 'aaaaa'.rsplit('aa', 1) }}",
       "['a', 'b', 'c']['a', 'b', '', 'c']['a', 'b,c']['a,b', 'c']['a', 'b c '][' a b', 'c'][]['']['', '', '']['aaa', "
       "'']"},
      {"{{ 'abc'.startswith('ab') }}{{ 'abc'.endswith(('x', 'c')) }}{{ 'abc'.startswith('') }}", "TrueTrueTrue"},
      {"{{ 'banana'.replace('a', 'o') }}{{ 'banana'.replace('a', 'o', 1) }}{{ 'banana'.count('an') }}{{ "
       "'banana'.find('n') }}{{ 'banana'.rfind('n') }}{{ 'banana'.find('x') }}{{ 'é世x'.find('x') }}{{ "
       "'banana'.index('b') }}",
       "bononobonana224-120"},
      {"{{ 'aBc'.upper() }}{{ 'aBc'.lower() }}{{ 'they\\'re bill'.title() }}{{ 'hELLO'.capitalize() }}",
       "ABCabcThey'Re BillHello"},
      {"{{ '-'.join(words) }}{{ ', '.join(['x']) }}{{ ''.join('abc') }}", "b-A-c-axabc"},
      {"{{ 'a\\nb\\r\\nc'.splitlines() }}{{ 'a\\nb\\n'.splitlines(true) }}{{ 'a=b=c'.partition('=') }}{{ "
       "'a=b=c'.rpartition('=') }}{{ 'abc'.partition('=') }}",
       "['a', 'b', 'c']['a\\n', 'b\\n']('a', '=', 'b=c')('a=b', '=', 'c')('abc', '', '')"},
      {"{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removeprefix('x') }}{{ 'ab'.ljust(4) }}|{{ "
       "'ab'.rjust(4, '.') }}|{{ 'ab'.center(5) }}|",
       "bcababcab  |..ab|  ab |"},
      {"{{ '12'.isdigit() }}{{ '1a'.isdigit() }}{{ 'ab'.isalpha() }}{{ 'a1'.isalnum() }}{{ ' '.isspace() }}{{ "
       "''.isspace() }}{{ 'Ab'.isupper() }}{{ 'a1'.islower() }}",
       "TrueFalseTrueTrueTrueFalseFalseTrue"},
      {"{{ '{} and {}'.format(1, 'x') }}{{ '{1}{0}'.format('a', 'b') }}{{ '{x}{{}}'.format(x=3) }}{{ "
       "'{:>4}|{:<3}|{:03d}|{:.2f}'.format('a', 'b', 7, 1.5) }}{{ '{0[a]}{1.a}'.format(d, d) }}",
       "1 and xba3{}   a|b  |007|1.50xx"},
  });
}

TEST(TemplateBuiltins, ListAndDictMethods) {
  expect_all({
      {"{{ d.get('a') }}{{ d.get('q') }}{{ d.get('q', 'z') }}{{ d.keys()|list }}{{ d.values()|list }}{{ d.items()|list "
       "}}",
       "xNonez['b', 'a', 'C'][1, 'x', [1, 2]][('b', 1), ('a', 'x'), ('C', [1, 2])]"},
      {"{{ list.index(2) }}{{ list.count(1) }}{{ (1, 2, 1).count(1) }}", "222"},
      {"{{ dict(a=1, b=2) }}{{ dict({'x': 1}, y=2) }}{{ dict([('k', 'v')]) }}",
       "{'a': 1, 'b': 2}{'x': 1, 'y': 2}{'k': 'v'}"},
      {"{{ {'a': 1}.copy() }}{{ [1].copy() }}", "{'a': 1}[1]"},
  });
}

}  // namespace
}  // namespace conclave
