// The tree that a template is parsed into. Nodes lie in two deques and point at each other, so that dropping a tree
// never recurses, however deep it is.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "text/template_text.h"

namespace conclave::jinja {

enum class ExprKind {
  none,
  boolean,  // integer is 0 or 1
  integer,
  real,
  string,
  name,
  list,         // args
  tuple,        // args
  dict,         // args: key, value, key, value, ...
  attribute,    // args[0] . name
  item,         // args[0] [ args[1] ]
  slice,        // args: start, stop, step; each may be null. Only as args[1] of an item.
  call,         // args[0] ( args[1].., keywords, star, star_star )
  filter,       // args[0] | name ( args[1].., ... ); args[0] is null in a filter block
  test,         // args[0] is name ( args[1].., ... )
  negation,     // not args[0]
  both,         // args[0] and args[1]
  either,       // args[0] or args[1]
  unary,        // name args[0]
  binary,       // args[0] name args[1]
  concat,       // args joined by ~
  compare,      // args[0] ops[0] args[1] ops[1] args[2] ...
  conditional,  // args[1] if args[0] else args[2], which may be null
};

struct Expr;

struct Keyword {
  std::string name;
  Expr* value;
};

struct Expr {
  ExprKind kind;
  int line;
  int height = 1;  // of the tree below: bounds the recursion of whoever walks it
  std::int64_t integer = 0;
  double real = 0;
  TextPtr text;
  std::string name;
  std::vector<Expr*> args;
  std::vector<std::string> ops;
  std::vector<Keyword> keywords;
  Expr* star = nullptr;
  Expr* star_star = nullptr;
};

enum class StmtKind {
  data,          // text as it is
  output,        // {{ expr }}
  branch,        // if: arms
  loop,          // for target in expr if filter: body, else other
  assign,        // set target = expr
  assign_block,  // set target: body, through expr if it is not null (a chain of filters)
  macro,         // name, params, body
  call_block,    // call expr: params, body
  filter_block,  // filter expr: body
  with,          // with keywords: body
  scope,         // generation: body with names of its own
  leave,         // break
  next,          // continue
};

struct Stmt;
using Body = std::vector<Stmt*>;

struct Arm {
  Expr* condition;  // null: else
  Body body;
};

struct Param {
  std::string name;
  Expr* fallback;  // null: none
};

struct Assignment {
  Expr* target;
  Expr* value;
};

struct Stmt {
  StmtKind kind;
  int line;
  TextPtr text;
  Expr* expr = nullptr;
  Expr* target = nullptr;  // a name, an attribute of a name, or a tuple of those
  Expr* filter = nullptr;
  std::string name;
  std::vector<Param> params;
  bool takes_varargs = false;  // the macro reads `varargs`, so it takes any number of arguments
  bool takes_kwargs = false;   // and the same for `kwargs`
  std::vector<Arm> arms;
  std::vector<Assignment> assignments;
  Body body;
  Body other;
};

struct Tree {
  std::deque<Expr> exprs;
  std::deque<Stmt> stmts;
  Body body;
};

}  // namespace conclave::jinja
