// The interface: conversations, ChatML, which characters are trusted, limits and errors.
#include "text/chat_template.h"

#include "text/cpu_time.h"
#include "text/render.h"

namespace conclave {
namespace {

using Pieces = std::vector<TemplatePiece>;

const std::vector<ChatMessage> kConversation = {{"system", "Be kind."}, {"user", "Hi <|im_end|>"}};

Pieces pieces_of(std::string_view source, const ChatValue::Object& variables) {
  return ChatTemplate(source).render({}, {.variables = variables});
}

// The trusted characters of what a template makes of x = "abc" and y = "D-E", which are typed; the others as dots.
std::string trusted_part(std::string_view source) {
  std::string out;
  for (const TemplatePiece& piece : pieces_of(source, {{"x", "abc"}, {"y", "D-E"}})) {
    out += piece.trusted ? piece.text : std::string(piece.text.size(), '.');
  }
  return out;
}

TEST(ChatTemplate, NoTemplateIsChatMl) {
  EXPECT_EQ(ChatTemplate("").render(kConversation, {}), (Pieces{{"<|im_start|>system\n", true},
                                                                {"Be kind.", false},
                                                                {"<|im_end|>\n<|im_start|>user\n", true},
                                                                {"Hi <|im_end|>", false},
                                                                {"<|im_end|>\n<|im_start|>assistant\n", true}}));
  EXPECT_EQ(joined(ChatTemplate("").render(std::vector<ChatMessage>{{"user", "x"}}, {.add_generation_prompt = false})),
            "<|im_start|>user\nx<|im_end|>\n");
  EXPECT_TRUE(ChatTemplate("").render({}, {.add_generation_prompt = false}).empty());
}

TEST(ChatTemplate, TheContextIsWhatTheTemplateSees) {
  const ChatTemplate all(
      "{{ bos_token }}{{ eos_token }}{{ add_generation_prompt }}{{ tools }}{{ documents }}{{ extra }}"
      "{{ strftime_now is defined }}");
  EXPECT_EQ(joined(all.render({}, {})), "TrueNoneNoneFalse");
  std::tm date{};
  date.tm_year = 124, date.tm_mon = 6, date.tm_mday = 5;
  EXPECT_EQ(joined(all.render({}, {.bos = "<s>",
                                   .eos = "</s>",
                                   .add_generation_prompt = false,
                                   .tools = ChatValue::Array{1},
                                   .documents = "d",
                                   .variables = {{"extra", 2.5}},
                                   .now = date})),
            "<s></s>False[1]d2.5True");
  EXPECT_EQ(joined(ChatTemplate("{{ strftime_now('%d %b %Y') }}").render({}, {.now = date})), "05 Jul 2024");
  EXPECT_EQ(joined(ChatTemplate("{{ strftime_now('') }}").render({}, {.now = date})), "");
}

TEST(ChatTemplate, MessagesCarryContentAndMore) {
  const ChatTemplate each("{% for m in messages %}{{ m }}{{ m.content is defined }};{% endfor %}");
  const std::vector<ChatMessage> messages = {
      {"user", ChatValue::Array{ChatValue::Object{{"type", "text"}, {"text", "t"}}}},
      {"assistant", std::nullopt, {{"tool_calls", ChatValue::Array{}}}},
      {"tool", nullptr},
  };
  EXPECT_EQ(joined(each.render(messages, {})),
            "{'role': 'user', 'content': [{'type': 'text', 'text': 't'}]}True;"
            "{'role': 'assistant', 'tool_calls': []}False;{'role': 'tool', 'content': None}True;");
}

TEST(ChatTemplate, RendersTheSameAgain) {
  const ChatTemplate chat("{% set _ = messages.append(1) %}{% set ns = namespace(n=messages|length) %}{{ ns.n }}");
  EXPECT_EQ(joined(chat.render(kConversation, {})), "3");
  EXPECT_EQ(joined(chat.render(kConversation, {})), "3");
}

TEST(ChatTemplate, ListsAndDictsCanBeChanged) {
  expect_all({
      {"{% set l = [1] %}{% set _ = l.append(2) %}{% set _ = l.extend([3, 4]) %}{% set _ = l.insert(0, 0) %}{{ l }}",
       "[0, 1, 2, 3, 4]"},
      {"{% set l = [1, 2, 3] %}{{ l.pop() }}{{ l.pop(0) }}{{ l }}{% set _ = l.remove(2) %}{{ l }}", "31[2][]"},
      {"{% set l = [1, 2] %}{% set _ = l.reverse() %}{{ l }}{% set _ = l.clear() %}{{ l }}", "[2, 1][]"},
      {"{% set d = {'a': 1, 'b': 2} %}{{ d.pop('a') }}{% set _ = d.update(c=3) %}{{ d }}{{ d['b'] }}{{ d.c }}",
       "1{'b': 2, 'c': 3}23"},
      {"{% set d = {} %}{{ d.setdefault('k', 1) }}{{ d.setdefault('k', 2) }}{{ d.pop('x', 9) }}{{ d }}", "119{'k': 1}"},
  });
}

// --- what was typed stays text

TEST(Provenance, LiteralsAreTrustedAndVariablesAreNot) {
  EXPECT_EQ(trusted_part("<t>{{ x }}</t>{{ '<u>' }}"), "<t>...</t><u>");
  EXPECT_EQ(trusted_part("{{ 'a' + x + 'b' }}{{ 'c' ~ x ~ 1 }}"), "a...bc...1");
  EXPECT_EQ(trusted_part("{{ {'k': x}.k }}{{ [x, 'l'] }}"), "...['...', 'l']");
}

TEST(Provenance, SurvivesEveryOperation) {
  EXPECT_EQ(trusted_part("{{ ('<' + x + '>')[1:] }}{{ ('<' + x + '>')[::-1] }}{{ ('<' + x)[0] }}"), "...>>...<<");
  EXPECT_EQ(trusted_part("{{ (' <' + x + ' ').strip() }}{{ (' <' + x + ' ')|trim }}"), "<...<...");
  EXPECT_EQ(trusted_part("{{ x.upper() }}{{ ('a' + y)|lower }}{{ ('a' + x)|title }}{{ (x + 'a')|capitalize }}"),
            "...a...A......a");
  EXPECT_EQ(trusted_part("{{ x.replace('b', '<br>') }}{{ '<1>'|replace('1', x) }}"), ".<br>.<...>");
  EXPECT_EQ(trusted_part("{{ ('p-' + y).split('-') | join('|') }}{{ y.rsplit('-')[0] }}{{ y.partition('-') }}"),
            "p|.|..('.', '.', '.')");
  EXPECT_EQ(trusted_part("{{ [x, '<s>', y] | join('+') }}{{ '-'.join([x, 'q']) }}"), "...+<s>+......-q");
  EXPECT_EQ(trusted_part("{{ {'k': x, y: '<v>'} | tojson }}"), "{\"k\": \"...\", \"...\": \"<v>\"}");
  EXPECT_EQ(trusted_part("{{ '%s<%s>' % (x, 'l') }}{{ '<{}>'.format(x) }}{{ '<%s>'|format(x) }}"), "...<l><...><...>");
  EXPECT_EQ(trusted_part("{{ ('<' + x + '\\n' + y)|indent(1) }}{{ x * 2 }}{{ x|center(5) }}"), "<...\n ......... ... ");
  EXPECT_EQ(trusted_part("{% for c in '<' + x %}{{ c }}{% endfor %}{{ ('<' + x)|list|last }}"), "<....");
  EXPECT_EQ(trusted_part("{{ x|string }}{{ x|default('d') }}{{ missing|default(x) }}{{ x|safe }}"), "............");
  EXPECT_EQ(trusted_part("{{ [y, x]|sort|first }}{{ [x]|map('upper')|first }}{{ ('&' + x)|e }}"), "......&amp;...");
}

TEST(Provenance, SurvivesVariablesMacrosAndBlocks) {
  EXPECT_EQ(trusted_part("{% set v = '<' + x %}{{ v }}{% set w %}[{{ x }}]{% endset %}{{ w }}"), "<...[...]");
  EXPECT_EQ(trusted_part("{% macro m(a) %}<{{ a }}>{% endmacro %}{{ m(x) }}{{ m('l')|upper }}"), "<...><L>");
  EXPECT_EQ(trusted_part("{% filter upper %}a{{ x }}{% endfilter %}"), "A...");
  EXPECT_EQ(trusted_part("{% set ns = namespace(s='') %}{% for i in [x, 'k'] %}{% set ns.s = ns.s ~ i %}{% endfor %}"
                         "{{ ns.s }}"),
            "...k");
}

TEST(Provenance, EscapesOfTypedTextAreTypedToo) {
  EXPECT_EQ(pieces_of("{{ x|tojson }}", {{"x", "\"\n"}}), (Pieces{{"\"", true}, {"\\\"\\n", false}, {"\"", true}}));
}

TEST(Provenance, UsualRolesAreTrustedOthersAreNot) {
  const ChatTemplate phi("{% for m in messages %}{{ '<|' + m.role + '|>' }}{% endfor %}");
  EXPECT_EQ(phi.render(std::vector<ChatMessage>{{"user", ""}}, {}), (Pieces{{"<|user|>", true}}));
  EXPECT_EQ(phi.render(std::vector<ChatMessage>{{"endoftext", ""}}, {}),
            (Pieces{{"<|", true}, {"endoftext", false}, {"|>", true}}));
}

TEST(Provenance, SpecialTokensOfTheContextAreTrusted) {
  EXPECT_EQ(ChatTemplate("{{ bos_token + 'x' + eos_token }}").render({}, {.bos = "<s>", .eos = "</s>"}),
            (Pieces{{"<s>x</s>", true}}));
}

TEST(Provenance, BytesThatAreNoUtf8PassThrough) {
  const std::string bytes = "a\xFF\xC3(\xE4\xB8";
  EXPECT_EQ(pieces_of("{{ x }}{{ x.strip() }}{{ x[::-1][::-1] }}{{ x|upper|lower }}", {{"x", bytes}}),
            (Pieces{{bytes + bytes + bytes + bytes, false}}));
}

// --- errors

TEST(TemplateErrors, TheTemplatesOwnComplaintIsTheError) {
  try {
    render("a\n\n{% if n %}{{ raise_exception('Roles must\nalternate: ' ~ name) }}{% endif %}");
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "chat template, line 3: Roles must\\x0aalternate: Ada");
    EXPECT_EQ(error.code(), ErrorCode::invalid_argument);
  }
}

TEST(TemplateErrors, SyntaxErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n{% if x %}\n"), "chat template, line 2: 'if' has no 'endif'");
  EXPECT_EQ(error_of("\n\n{{ 1 + }}"), "chat template, line 3: expected an expression, found }}");
  EXPECT_EQ(error_of("{{ 'abc }}"), "chat template, line 1: a string that does not end");
  EXPECT_EQ(error_of("x\n{# never"), "chat template, line 2: a comment that does not end");
  EXPECT_EQ(error_of("{% raw %}"), "chat template, line 1: a raw block that does not end");
  EXPECT_EQ(error_of("{{ (1] }}"), "chat template, line 1: unexpected ']', expected ')'");
  EXPECT_EQ(error_of("{% endfor %}"), "chat template, line 1: 'endfor' is no tag that chat templates can use here");
  EXPECT_EQ(error_of("{% include 'x' %}"),
            "chat template, line 1: 'include' is no tag that chat templates can use here");
  EXPECT_EQ(error_of("{% break %}"), "chat template, line 1: 'break' outside of a loop");
  EXPECT_EQ(error_of("{% set 1 = 2 %}"), "chat template, line 1: expected a name to assign to, found a number");
  EXPECT_EQ(error_of("{% set none = 2 %}"), "chat template, line 1: none, true and false cannot be assigned to");
  EXPECT_EQ(error_of("{{ 99999999999999999999 }}"),
            "chat template, line 1: the number 99999999999999999999 is out of range");
  EXPECT_EQ(error_of("{{ '\\ud800' }}"), "chat template, line 1: a string has a \\u or \\U that is no character");
  EXPECT_EQ(error_of("{{ a $ b }}"), "chat template, line 1: unexpected '$'");
  EXPECT_EQ(error_of("{{ x"), "chat template, line 1: the template ends inside {{ }}");
  EXPECT_EQ(error_of("{% macro m(a=1, b) %}{% endmacro %}"),
            "chat template, line 1: a parameter without a default after one with a default");
}

TEST(TemplateErrors, RuntimeErrorsNameTheLine) {
  EXPECT_EQ(error_of("\n{{ missing.x }}"), "chat template, line 2: 'missing' is undefined");
  EXPECT_EQ(error_of("{{ d.x.y }}"), "chat template, line 1: a dict has no attribute 'x'");
  EXPECT_EQ(error_of("{{ 'a' + 1 }}"), "chat template, line 1: '+' does not work with a str and a int");
  EXPECT_EQ(error_of("{{ missing + 'a' }}"), "chat template, line 1: 'missing' is undefined");
  EXPECT_EQ(error_of("{{ missing() }}"), "chat template, line 1: 'missing' is undefined");
  EXPECT_EQ(error_of("{{ 1 // 0 }}"), "chat template, line 1: division by zero");
  EXPECT_EQ(error_of("{{ 1 < 'a' }}"), "chat template, line 1: a int and a str have no order");
  EXPECT_EQ(error_of("{% for i in 5 %}{% endfor %}"), "chat template, line 1: a int cannot be iterated over");
  EXPECT_EQ(error_of("{{ 1|nope }}"), "chat template, line 1: there is no filter 'nope'");
  EXPECT_EQ(error_of("{{ 1 is nope }}"), "chat template, line 1: there is no test 'nope' with 0 arguments");
  EXPECT_EQ(error_of("{% set a, b = [1] %}"), "chat template, line 1: 1 values for 2 names");
  EXPECT_EQ(error_of("{% set d.x = 1 %}"), "chat template, line 1: 'x' is assigned to a dict, must be a namespace");
  EXPECT_EQ(error_of("{% macro m(a) %}{% endmacro %}\n{{ m(1, 2) }}"),
            "chat template, line 2: the macro 'm' takes at most 1 arguments");
  EXPECT_EQ(error_of("{% macro m(a) %}{% endmacro %}{{ m(b=2) }}"),
            "chat template, line 1: the macro 'm' has no parameter 'b'");
  EXPECT_EQ(error_of("{{ {[1]: 2} }}"), "chat template, line 1: a list cannot be the key of a dict");
  EXPECT_EQ(error_of("{{ range|tojson }}"), "chat template, line 1: tojson cannot write a function");
  EXPECT_EQ(error_of("{{ 9223372036854775807 + 1 }}"),
            "chat template, line 1: a number is out of the range of 64 bits");
  EXPECT_EQ(error_of("{{ (-9223372036854775807 - 1) // -1 }}"),
            "chat template, line 1: a number is out of the range of 64 bits");
  EXPECT_EQ(error_of("{{ 2 ** 64 }}"), "chat template, line 1: a number is out of the range of 64 bits");
}

TEST(TemplateErrors, NothingOfPythonCanBeReached) {
  EXPECT_EQ(render("{{ ''.__class__ }}{{ d.__init__ }}{{ d['__class__'] }}"), "");
  EXPECT_EQ(error_of("{{ ''.__class__.__mro__ }}"), "chat template, line 1: a str has no attribute '__class__'");
}

// --- limits

constexpr std::string_view kTooManySteps = "it does not end within 10000 steps";

TEST(TemplateLimits, ATemplateThatLoopsEnds) {
  const TemplateLimits few{.max_steps = 10'000};
  for (const std::string_view source : {
           "\n{% for i in range(100000) %}{% endfor %}",
           "\n{% for a in range(99) %}{% for b in range(99) %}{% for c in range(99) %}{% endfor %}{% endfor %}{% "
           "endfor %}",
           "\n{{ 'a' * 100000000 }}",
           "\n{{ ([1] * 100000)|length }}",
           "\n{% set ns = namespace(l=[1]) %}{% for i in range(60) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
           "\n{{ range(9000)|map('string')|join(',')|list|sort|join }}",
       }) {
    EXPECT_EQ(error_of(source, few), "chat template, line 2: " + std::string(kTooManySteps)) << source;
  }
}

TEST(TemplateLimits, ATemplateThatGrowsEnds) {
  const TemplateLimits small{.max_text_bytes = 1000};
  const std::string expected = "chat template, line 1: it makes a text of more than 1000 bytes";
  for (const std::string_view source : {
           "{% for i in range(99) %}{{ 'twenty characters...' }}{% endfor %}",
           "{{ 'a' * 1001 }}",
           "{{ ('a' * 600) ~ ('b' * 600) }}",
           "{{ ('a' * 600) + ('b' * 600) }}",
           "{{ ('a' * 100)|replace('a', 'xxxxxxxxxxxxxxxx') }}",
           "{{ ['a' * 600, 'b' * 600]|join }}",
           "{{ ['a' * 600, 'b' * 600]|tojson }}",
           "{{ ['a' * 600, 'b' * 600, 1] }}",
           "{{ 'a'|center(2000) }}",
           "{{ 'a\\nb'|indent(2000) }}",
           "{{ '%s%s' % ('a' * 600, 'b' * 600) }}",
           "{{ '{0}{0}'.format('a' * 600) }}",
           "{{ [[[1]]]|tojson(indent=900) }}",
       }) {
    EXPECT_EQ(error_of(source, small), expected) << source;
  }
  EXPECT_EQ(render("{{ 'a' * 1000 }}", small).size(), 1000U);
}

TEST(TemplateLimits, ATemplateThatKeepsTextsEnds) {
  const TemplateLimits small{.max_kept_bytes = 10'000};
  const std::string expected = "chat template, line 1: it keeps more than 10000 bytes of text";
  for (const std::string_view source : {
           "{% set l = [] %}{% for i in range(9) %}{% set _ = l.append('a' * 2000) %}{% endfor %}",
           "{{ (['A' * 2000] * 9)|sort|length }}",
           "{{ ([['a' * 2000]] * 9)|map('string')|list|length }}",
       }) {
    EXPECT_EQ(error_of(source, small), expected) << source;
  }
  // What is gone does not count.
  EXPECT_EQ(render("{% for i in range(99) %}{{ ('a' * 2000)|length // 2000 }}{% endfor %}", small).size(), 99U);
}

TEST(TemplateLimits, ATemplateThatWorksOnLongTextsEnds) {
  for (const std::string_view source : {
           "{{ (['a' * 100000] * 100000)|sort|length }}",
           "{{ (['a' * 100000] * 100000)|unique|list|length }}",
           "{{ (['a' * 100000] * 100000)|max|length }}",
           "{{ (['a' * 100000] * 100000)|map('title')|list|length }}",
           "{{ (['a' * 100000] * 100000)|map('wordcount')|sum }}",
           "{% set a = 'a' * 100000 %}{% for i in range(100000) %}{% set _ = a.title() %}{% endfor %}",
           "{% set a = 'a' * 100000 %}{% for i in range(100000) %}{% set _ = a.strip('a') %}{% endfor %}",
       }) {
    const testing::CpuTimer timer;
    EXPECT_EQ(error_of(source), "chat template, line 1: it does not end within 20000000 steps") << source;
    EXPECT_LT(timer.seconds(), 5 * testing::kSlower) << source;
  }
}

TEST(TemplateLimits, ATemplateThatRecursesEnds) {
  const std::string expected = "macros, expressions or data are nested deeper than 1000 levels";
  EXPECT_EQ(error_of("{% macro m() %}\n{{ m() }}{% endmacro %}{{ m() }}"), "chat template, line 2: " + expected);
  EXPECT_EQ(error_of("{% set l = [] %}{% set _ = l.append(l) %}{{ l }}"), "chat template, line 1: " + expected);
  EXPECT_EQ(error_of("{% set l = [] %}{% set _ = l.append(l) %}{{ l|tojson }}"), "chat template, line 1: " + expected);
  EXPECT_EQ(error_of("{% set l = [] %}{% set _ = l.append(l) %}{% set m = [] %}{% set _ = m.append(m) %}{{ l == m }}"),
            "chat template, line 1: " + expected);
}

std::string repeated(std::string_view part, int n) {
  std::string text;
  for (int i = 0; i < n; ++i) text += part;
  return text;
}

TEST(TemplateLimits, NestingHasABound) {
  const std::string too_deep = "chat template, line 1: nested deeper than 100 levels";
  constexpr int kMany = 50'000;
  for (const std::string_view open : {"(", "[", "{1:", "not ", "-", "f(", "1 if 1 else ", "x[", "1 is eq (", "x|f("}) {
    EXPECT_EQ(error_of("{{ " + repeated(open, kMany)), "chat template, line 1: the template ends inside {{ }}") << open;
  }
  const auto nested = [](std::string_view open, std::string_view close) {
    return "{{ " + repeated(open, kMany) + "1" + repeated(close, kMany) + " }}";
  };
  EXPECT_EQ(error_of(nested("(", ")")), too_deep);
  EXPECT_EQ(error_of(nested("[", "]")), too_deep);
  EXPECT_EQ(error_of(nested("not ", "")), too_deep);
  EXPECT_EQ(error_of(nested("- ", "")), too_deep);
  EXPECT_EQ(error_of(nested("1 if 1 else ", "")), too_deep);
  EXPECT_EQ(error_of(nested("f(", ")")), too_deep);
  EXPECT_EQ(error_of("{% set " + repeated("(", kMany) + "a" + repeated(")", kMany) + " = 1 %}"), too_deep);
  EXPECT_EQ(error_of(repeated("{% if 1 %}", kMany)), too_deep);
  EXPECT_EQ(error_of(repeated("{% macro m() %}", kMany)), too_deep);
  const std::string too_high = "chat template, line 1: an expression of more than 200 levels";
  for (const std::string_view more : {"+1", ".a", "[0]", "()", "|f", " and 1", " or 1", "*1", "**1"}) {
    EXPECT_EQ(error_of("{{ 1" + repeated(more, kMany) + " }}"), too_high) << more;
  }
  EXPECT_EQ(render("{{ 'a'" + repeated(" ~ 'a'", 1000) + " }}").size(), 1001U);
  EXPECT_EQ(render("{% if no %}" + repeated("{% elif no %}", 1000) + "{% else %}x{% endif %}"), "x");
}

TEST(TemplateLimits, DataThatIsNestedTooDeepIsAnError) {
  ChatValue deep = 1;
  for (int i = 0; i < 2000; ++i) deep = ChatValue::Array{std::move(deep)};
  EXPECT_THROW(ChatTemplate("x").render({}, {.variables = {{"deep", deep}}}), Error);
}

TEST(TemplateLimits, TheSourceHasALargestSize) {
  EXPECT_EQ(error_of("0123456789", {.max_source_bytes = 9}), "chat template: it has 10 bytes, must have at most 9");
}

// 1 MB through everything that searches or splits: quadratic code would take hours.
TEST(TemplateLimits, LongTextsAreHandledInLinearTime) {
  const std::string a(1'000'000, 'a');
  const ChatTemplate chat(
      "{{ x.split('ab')|length }}{{ x.rsplit(x[1:] + 'b')|length }}{{ (x + 'b') in x }}{{ x.replace('aab', 'c')|length "
      "}}"
      "{{ x|trim|length }}{{ x[::-1]|length }}{{ x.rfind(x[:500000] + 'b') }}{{ x|upper|length }}{{ x.strip('a') }}");
  EXPECT_EQ(joined(chat.render({}, {.variables = {{"x", a}}})), "11False100000010000001000000-11000000");
}

}  // namespace
}  // namespace conclave
