#include "text/template_parser.h"

#include <memory>
#include <utility>

#include "base/fail.h"
#include "base/file_text.h"
#include "text/template_parser_state.h"

namespace conclave::jinja {
namespace {

class Parser {
 public:
  explicit Parser(std::string_view source) : tokens_(tokenize(source)) {}

  Tree run() {
    tree_.body = body({}, {});
    return std::move(tree_);
  }

 private:
  using Words = std::initializer_list<std::string_view>;

  Stmt* stmt(StmtKind kind, int line) {
    tree_.stmts.push_back({.kind = kind, .line = line});
    return &tree_.stmts.back();
  }

  // Statements up to a tag with one of the words, which is the current token then. Without words: up to the end.
  Body body(std::string_view opened_by, Words ends) {
    const Nesting nesting(depth_, tokens_.line());
    const int line = tokens_.line();
    Body statements;
    for (;;) {
      switch (tokens_.now().kind) {
        case TokenKind::data: {
          Stmt* const data = stmt(StmtKind::data, tokens_.line());
          data->text = std::make_shared<const Text>(tokens_.take().text, true);
          statements.push_back(data);
          break;
        }
        case TokenKind::variable_begin: {
          Stmt* const output = stmt(StmtKind::output, tokens_.take().line);
          output->expr = exprs_.tuple();
          tokens_.expect(TokenKind::variable_end, "'}}'");
          statements.push_back(output);
          break;
        }
        case TokenKind::block_begin: {
          tokens_.take();
          for (const std::string_view end : ends) {
            if (tokens_.is_word(end)) return statements;
          }
          statements.push_back(statement());
          tokens_.expect(TokenKind::block_end, "'%}'");
          break;
        }
        default:
          if (ends.size() == 0 && tokens_.is(TokenKind::end)) return statements;
          syntax_error(line, fmt::format("'{}' has no '{}'", opened_by, std::data(ends)[ends.size() - 1]));
      }
    }
  }

  // The body of a block whose opening tag has been read up to its %}, and its end tag's word.
  Body block(std::string_view opened_by, std::string_view end) {
    tokens_.expect(TokenKind::block_end, "'%}'");
    Body inside = body(opened_by, {end});
    tokens_.take();
    return inside;
  }

  Stmt* statement() {
    const int line = tokens_.line();
    const std::string tag = tokens_.is(TokenKind::name) ? tokens_.now().text : std::string();
    if (tag.empty()) tokens_.unexpected("the name of a tag");
    tokens_.take();
    if (tag == "if") return branch(line);
    if (tag == "for") return loop(line);
    if (tag == "set") return assign(line);
    if (tag == "macro") return macro(line);
    if (tag == "call") return call_block(line);
    if (tag == "filter") return filter_block(line);
    if (tag == "with") return with(line);
    if (tag == "generation") {
      Stmt* const inside = stmt(StmtKind::scope, line);
      inside->body = function_block(tag, "endgeneration");
      return inside;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) syntax_error(line, fmt::format("'{}' outside of a loop", tag));
      return stmt(tag == "break" ? StmtKind::leave : StmtKind::next, line);
    }
    syntax_error(line, fmt::format("'{}' is no tag that chat templates can use here", printable(tag)));
  }

  Stmt* branch(int line) {
    Stmt* const whole = stmt(StmtKind::branch, line);
    for (;;) {
      Expr* const condition = exprs_.tuple(ExprParser::Conditional::no);
      tokens_.expect(TokenKind::block_end, "'%}'");
      Body inside = body("if", {"elif", "else", "endif"});
      whole->arms.push_back({condition, std::move(inside)});
      if (!tokens_.skip_word("elif")) break;
    }
    if (tokens_.skip_word("else")) {
      tokens_.expect(TokenKind::block_end, "'%}'");
      Body inside = body("else", {"endif"});
      whole->arms.push_back({nullptr, std::move(inside)});
    }
    tokens_.expect_word("endif");
    return whole;
  }

  Stmt* loop(int line) {
    Stmt* const whole = stmt(StmtKind::loop, line);
    whole->target = exprs_.target(false);
    tokens_.expect_word("in");
    whole->expr = exprs_.tuple(ExprParser::Conditional::no);
    if (tokens_.skip_word("if")) whole->filter = exprs_.expression();
    if (tokens_.is_word("recursive")) syntax_error(line, "recursive loops are not supported");
    tokens_.expect(TokenKind::block_end, "'%}'");
    ++loops_;
    whole->body = body("for", {"else", "endfor"});
    --loops_;
    if (tokens_.skip_word("else")) {
      tokens_.expect(TokenKind::block_end, "'%}'");
      whole->other = body("else", {"endfor"});
    }
    tokens_.expect_word("endfor");
    return whole;
  }

  Stmt* assign(int line) {
    Expr* const target = exprs_.target(true);
    if (tokens_.skip_op("=")) {
      Stmt* const whole = stmt(StmtKind::assign, line);
      whole->target = target;
      whole->expr = exprs_.tuple();
      return whole;
    }
    Stmt* const whole = stmt(StmtKind::assign_block, line);
    whole->target = target;
    if (tokens_.skip_op("|")) whole->expr = exprs_.filter_chain();
    whole->body = block("set", "endset");
    return whole;
  }

  std::vector<Param> params() {
    std::vector<Param> list;
    tokens_.expect_op("(");
    while (!tokens_.is_op(")")) {
      const int line = tokens_.line();
      std::string name = tokens_.expect_name();
      Expr* const fallback = tokens_.skip_op("=") ? exprs_.expression() : nullptr;
      if (fallback == nullptr && !list.empty() && list.back().fallback != nullptr) {
        syntax_error(line, "a parameter without a default after one with a default");
      }
      list.push_back({std::move(name), fallback});
      if (!tokens_.skip_op(",")) break;
    }
    tokens_.expect_op(")");
    return list;
  }

  // A macro's body is a function of its own: break and continue do not reach out of it.
  Body function_block(std::string_view opened_by, std::string_view end) {
    const int outer = std::exchange(loops_, 0);
    Body inside = block(opened_by, end);
    loops_ = outer;
    return inside;
  }

  Stmt* macro(int line) {
    Stmt* const whole = stmt(StmtKind::macro, line);
    whole->name = tokens_.expect_name();
    whole->params = params();
    const ExprParser::Seen before = exprs_.seen();
    whole->body = function_block("macro", "endmacro");
    whole->takes_varargs = exprs_.seen().varargs > before.varargs;
    whole->takes_kwargs = exprs_.seen().kwargs > before.kwargs;
    return whole;
  }

  Stmt* call_block(int line) {
    Stmt* const whole = stmt(StmtKind::call_block, line);
    whole->name = "caller";
    if (tokens_.is_op("(")) whole->params = params();
    whole->expr = exprs_.expression();
    if (whole->expr->kind != ExprKind::call) syntax_error(line, "'call' wants a call of a macro");
    whole->body = function_block("call", "endcall");
    return whole;
  }

  Stmt* filter_block(int line) {
    Stmt* const whole = stmt(StmtKind::filter_block, line);
    whole->expr = exprs_.filter_chain();
    whole->body = block("filter", "endfilter");
    return whole;
  }

  Stmt* with(int line) {
    Stmt* const whole = stmt(StmtKind::with, line);
    while (!tokens_.is(TokenKind::block_end)) {
      Expr* const target = exprs_.target(false);
      tokens_.expect_op("=");
      whole->assignments.push_back({target, exprs_.expression()});
      if (!tokens_.skip_op(",")) break;
    }
    whole->body = block("with", "endwith");
    return whole;
  }

  TokenStream tokens_;
  Tree tree_;
  int depth_ = 0;
  int loops_ = 0;
  ExprParser exprs_{tokens_, tree_, depth_};
};

}  // namespace

Tree parse(std::string_view source) {
  return Parser(source).run();
}

}  // namespace conclave::jinja
